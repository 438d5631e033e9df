// Signature of the training of text embeddings.
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tfxclass {
namespace {

using tensorflow::shape_inference::InferenceContext;

REGISTER_OP("Tfxclass>TrainTextEmbeddings")
    .Input("terms: resource")
    .Input("term_sums: resource")
    .Input("labels: resource")
    .Input("label_sums: resource")
    .Input("squares: resource")
    .Input("text_splits: int64")
    .Input("text_terms: int32")
    .Input("text_values: float")
    .Input("text_label_splits: int64")
    .Input("text_labels: int64")
    .Input("order: int64")
    .Input("first_step: int64")
    .Input("num_steps: int64")
    .Input("seed: int64")
    .Output("loss: float")
    .Attr("batch_size: int >= 1")
    .Attr("num_sampled: int >= 1")
    .Attr("scale: float")
    .Attr("dropout: float")
    .Attr("term_rate: float")
    .Attr("label_rate: float")
    .Attr("term_offset: float")
    .Attr("label_offset: float")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->Scalar());
      return absl::OkStatus();
    });

}  // namespace
}  // namespace tfxclass
