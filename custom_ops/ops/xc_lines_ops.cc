// Signature of the parser of the extreme-classification text format.
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tfxclass {
namespace {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

REGISTER_OP("Tfxclass>ParseXcLines")
    .Input("lines: string")
    .Input("line_numbers: int64")
    .Output("feature_splits: int64")
    .Output("features: int64")
    .Output("values: float")
    .Output("label_splits: int64")
    .Output("labels: int64")
    .Attr("num_features: int >= 1")
    .Attr("num_classes: int >= 1")
    .Attr("path: string = ''")
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle lines;
      DimensionHandle splits;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &lines));
      TF_RETURN_IF_ERROR(c->Merge(lines, c->input(1), &lines));
      TF_RETURN_IF_ERROR(c->Add(c->Dim(lines, 0), 1, &splits));
      const ShapeHandle features = c->Vector(c->UnknownDim());
      c->set_output(0, c->Vector(splits));
      c->set_output(1, features);
      c->set_output(2, features);
      c->set_output(3, c->Vector(splits));
      c->set_output(4, c->Vector(c->UnknownDim()));
      return absl::OkStatus();
    });

}  // namespace
}  // namespace tfxclass
