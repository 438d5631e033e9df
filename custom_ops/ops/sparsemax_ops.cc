// Signature of the threshold of a sparsemax.
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tfxclass {
namespace {

using tensorflow::shape_inference::InferenceContext;

REGISTER_OP("Tfxclass>SparsemaxThreshold")
    .Input("logits: float")
    .Output("top: float")
    .Output("tau: float")
    .Output("sum_squares: float")
    .SetShapeFn([](InferenceContext* c) {
      tensorflow::shape_inference::ShapeHandle logits;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, &logits));
      for (int i = 0; i < 3; ++i)
        c->set_output(i, c->Vector(c->Dim(logits, 0)));
      return absl::OkStatus();
    });

}  // namespace
}  // namespace tfxclass
