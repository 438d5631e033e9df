// Signature of linear one-vs-rest classifiers on sparse rows.
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tfxclass {
namespace {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

REGISTER_OP("Tfxclass>LinearOneVsRest")
    .Input("feature_splits: int64")
    .Input("features: int32")
    .Input("values: float")
    .Input("label_splits: int64")
    .Input("labels: int64")
    .Input("group_label_splits: int64")
    .Input("group_labels: int64")
    .Input("group_row_splits: int64")
    .Input("group_rows: int64")
    .Input("start_splits: int64")
    .Input("start_columns: int32")
    .Input("start_values: float")
    .Input("start_biases: float")
    .Output("weight_splits: int64")
    .Output("weight_columns: int32")
    .Output("weights: float")
    .Output("biases: float")
    .Attr("num_features: int >= 1")
    .Attr("num_labels: int >= 1")
    .Attr("c: float")
    .Attr("bias: float")
    .Attr("num_epochs: int >= 1")
    .Attr("tolerance: float")
    .Attr("threshold: float")
    .Attr("seed: int")
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle vector;
      for (int i = 0; i < 13; ++i) {
        TF_RETURN_IF_ERROR(c->WithRank(c->input(i), 1, &vector));
      }
      int64_t num_features;
      TF_RETURN_IF_ERROR(c->GetAttr("num_features", &num_features));
      c->set_output(0, c->Vector(num_features + 1));
      c->set_output(1, c->Vector(c->UnknownDim()));
      c->set_output(2, c->Vector(c->UnknownDim()));
      c->set_output(3, c->Vector(c->Dim(c->input(6), 0)));
      return absl::OkStatus();
    });

}  // namespace
}  // namespace tfxclass
