// Signature of the scores of a linear model with sparse weights.
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tfxclass {
namespace {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

REGISTER_OP("Tfxclass>SparseScores")
    .Input("ids: int64")
    .Input("values: float")
    .Input("places: int32")
    .Input("dense: float")
    .Input("splits: int64")
    .Input("columns: int32")
    .Input("entries: float")
    .Input("biases: float")
    .Input("groups: int32")
    .Input("slope: float")
    .Input("intercept: float")
    .Output("scores: float")
    .Attr("num_labels: int >= 1")
    .Attr("activation: {'none', 'sigmoid', 'softmax'}")
    .Attr("group_slope: float")
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle ids, any;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, &ids));
      TF_RETURN_IF_ERROR(c->Merge(ids, c->input(1), &any));
      TF_RETURN_IF_ERROR(c->WithRank(c->input(3), 2, &any));
      for (const int i : {2, 4, 5, 6, 7, 8}) {
        TF_RETURN_IF_ERROR(c->WithRank(c->input(i), 1, &any));
      }
      int64_t num_labels;
      TF_RETURN_IF_ERROR(c->GetAttr("num_labels", &num_labels));
      c->set_output(0, c->Matrix(c->Dim(ids, 0), num_labels));
      return absl::OkStatus();
    });

}  // namespace
}  // namespace tfxclass
