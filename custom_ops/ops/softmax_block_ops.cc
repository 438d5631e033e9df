// Signatures of the streaming passes over blocks of logits.
//
// An `offset` or a `start` may be int32, which TensorFlow keeps in the memory
// of the host: a loop that counts in int64 waits for the GPU in each iteration.
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tfxclass {
namespace {

using tensorflow::shape_inference::InferenceContext;

absl::Status LikeInput(InferenceContext* c, int output, int input) {
  c->set_output(output, c->input(input));
  return absl::OkStatus();
}

REGISTER_OP("Tfxclass>SoftmaxBlockStats")
    .Input("logits: float")
    .Input("targets: int64")
    .Input("delta: float")
    .Input("offset: Index")
    .Input("running_max: float")
    .Input("running_sum: double")
    .Output("new_max: float")
    .Output("new_sum: double")
    .Attr("Index: {int32, int64} = DT_INT64")
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(LikeInput(c, 0, 4));
      return LikeInput(c, 1, 5);
    });

REGISTER_OP("Tfxclass>SoftmaxBlockGrad")
    .Input("logits: float")
    .Input("targets: int64")
    .Input("target_grad: float")
    .Input("offset: Index")
    .Input("logsumexp: float")
    .Input("upstream: float")
    .Output("grad: Out")
    .Attr("Out: {bfloat16, float} = DT_FLOAT")
    .Attr("Index: {int32, int64} = DT_INT64")
    .SetShapeFn([](InferenceContext* c) { return LikeInput(c, 0, 0); });

REGISTER_OP("Tfxclass>TopKBlock")
    .Input("logits: float")
    .Input("offset: Index")
    .Input("scores: float")
    .Input("ids: int64")
    .Output("new_scores: float")
    .Output("new_ids: int64")
    .Attr("Index: {int32, int64} = DT_INT64")
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(LikeInput(c, 0, 2));
      return LikeInput(c, 1, 3);
    });

// Writes `rows` into `buffer` from row `start` on; in place when nothing else
// holds the buffer, as in a loop.
REGISTER_OP("Tfxclass>WriteRows")
    .Input("buffer: float")
    .Input("rows: float")
    .Input("start: Index")
    .Output("result: float")
    .Attr("Index: {int32, int64} = DT_INT64")
    .SetShapeFn([](InferenceContext* c) { return LikeInput(c, 0, 0); });

// A tensor of that shape, its values undefined.
REGISTER_OP("Tfxclass>EmptyLike")
    .Input("like: float")
    .Output("empty: float")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) { return LikeInput(c, 0, 0); });

}  // namespace
}  // namespace tfxclass
