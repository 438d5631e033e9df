// Signatures of k-means: rows by their nearest centres, and halves of groups.
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tfxclass {
namespace {

using tensorflow::shape_inference::InferenceContext;

REGISTER_OP("Tfxclass>KMeans")
    .Input("rows: T")
    .Input("num_clusters: int64")
    .Input("seed: int64")
    .Output("clusters: int64")
    .Attr("T: {float, bfloat16} = DT_FLOAT")
    .SetShapeFn([](InferenceContext* c) {
      tensorflow::shape_inference::ShapeHandle rows;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, &rows));
      c->set_output(0, c->Vector(c->Dim(rows, 0)));
      return absl::OkStatus();
    });

REGISTER_OP("Tfxclass>HalveGroups")
    .Input("rows: float")
    .Input("ids: int64")
    .Input("sizes: int64")
    .Input("splits: bool")
    .Input("passes: int64")
    .Input("seed: int64")
    .Output("halved: int64")
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->input(1));
      return absl::OkStatus();
    });

}  // namespace
}  // namespace tfxclass
