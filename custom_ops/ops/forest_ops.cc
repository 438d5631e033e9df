// Signatures of the hashing forest.
#include "ops/index_ops.h"

namespace tfxclass {
namespace {

REGISTER_INDEX_OPS("Tfxclass>Forest");

REGISTER_OP("Tfxclass>ForestBuild")
    .Input("forest: resource")
    .Input("kernel: resource")
    .Input("num_trees: int64")
    .Input("leaf_size: int64")
    .Input("seed: int64")
    .Attr("sketch: int >= 0 = 0")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs);

REGISTER_OP("Tfxclass>ForestAdvance")
    .Input("forest: resource")
    .Input("kernel: resource")
    .Input("step: int64")
    .Input("interval: int64")
    .Input("lag: int64")
    .Input("drifted: bool")
    .Input("num_trees: int64")
    .Input("leaf_size: int64")
    .Input("seed: int64")
    .Attr("sketch: int >= 0 = 0")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs);

REGISTER_OP("Tfxclass>ForestQuery")
    .Input("forest: resource")
    .Input("kernel: resource")
    .Input("queries: float")
    .Input("num_neighbors: int64")
    .Input("bucket: int64")
    .Input("num_candidates: int64")
    .Output("ids: int64")
    .Output("scores: float")
    .Attr("normalize: bool")
    .SetIsStateful()
    .SetShapeFn(IndexQueryShape);

}  // namespace
}  // namespace tfxclass
