// Signatures of the memory of neighbours.
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tfxclass {
namespace {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

REGISTER_OP("Tfxclass>RecallNeighbors")
    .Input("memory: resource")
    .Input("recent: resource")
    .Input("centres: resource")
    .Input("products: float")
    .Input("labels: int64")
    .Input("num_asked: int64")
    .Input("step: int64")
    .Output("asked: int64")
    .Output("known: int64")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle products;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(3), 2, &products));
      c->set_output(0, c->Vector(c->UnknownDim()));
      c->set_output(1, c->Matrix(c->Dim(products, 0), c->UnknownDim()));
      return absl::OkStatus();
    });

REGISTER_OP("Tfxclass>RankNeighbors")
    .Input("memory: resource")
    .Input("kernel: resource")
    .Input("queries: float")
    .Input("target_ids: int64")
    .Input("labels: int64")
    .Input("known: int64")
    .Input("asked: int64")
    .Input("found: int64")
    .Input("count: int64")
    .Input("step: int64")
    .Output("ids: int64")
    .Output("shares: float")
    .Attr("normalize: bool")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle queries;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(2), 2, &queries));
      for (int i = 0; i < 2; ++i) {
        c->set_output(i, c->Matrix(c->Dim(queries, 0), c->UnknownDim()));
      }
      return absl::OkStatus();
    });

}  // namespace
}  // namespace tfxclass
