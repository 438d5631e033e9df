// Signatures of the groups of class rows: k-means and PCA hash.
#include "ops/index_ops.h"

namespace tfxclass {
namespace {

using tensorflow::shape_inference::InferenceContext;

#define REGISTER_GROUP_OPS(prefix)                         \
  REGISTER_INDEX_OPS(prefix);                              \
  REGISTER_OP(prefix "Build")                              \
      .Input("index: resource")                            \
      .Input("kernel: resource")                           \
      .Input("num_groups: int64")                          \
      .Input("seed: int64")                                \
      .Attr("normalize: bool")                             \
      .SetIsStateful()                                     \
      .SetShapeFn(tensorflow::shape_inference::NoOutputs); \
  REGISTER_OP(prefix "Advance")                            \
      .Input("index: resource")                            \
      .Input("kernel: resource")                           \
      .Input("step: int64")                                \
      .Input("interval: int64")                            \
      .Input("num_groups: int64")                          \
      .Input("seed: int64")                                \
      .Attr("normalize: bool")                             \
      .SetIsStateful()                                     \
      .SetShapeFn(tensorflow::shape_inference::NoOutputs); \
  REGISTER_OP(prefix "Members")                            \
      .Input("index: resource")                            \
      .Input("targets: int64")                             \
      .Input("limit: int64")                               \
      .Input("seed: int64")                                \
      .Output("ids: int64")                                \
      .SetIsStateful()                                     \
      .SetShapeFn([](InferenceContext* c) {                \
        c->set_output(0, c->Vector(c->UnknownDim()));      \
        return absl::OkStatus();                           \
      })

REGISTER_GROUP_OPS("Tfxclass>Cluster");
REGISTER_GROUP_OPS("Tfxclass>PcaHash");

}  // namespace
}  // namespace tfxclass
