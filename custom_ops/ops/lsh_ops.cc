// Signatures of LSH tables and their hash functions.
#include "ops/index_ops.h"

namespace tfxclass {
namespace {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

constexpr char kFamily[] =
    "hash: {'simhash', 'sparse_simhash', 'dwta'} = 'simhash'";

#define HASH_ATTRS                  \
  .Attr("num_hashes: int >= 1")     \
      .Attr("num_tables: int >= 1") \
      .Attr("bin_size: int >= 2 = 8")

// Of a build of tables.
#define TABLE_ATTRS                                             \
  .Attr(kFamily) HASH_ATTRS.Attr("inner_product: bool = false") \
      .Attr("incremental: bool = true")                         \
      .Attr("bucket_size: int >= 0 = 0")                        \
      .Attr("redraw_interval: int >= 0 = 0")

// Codes [num_tables, rows].
absl::Status CodesShape(InferenceContext* c, DimensionHandle rows) {
  int64_t num_tables;
  TF_RETURN_IF_ERROR(c->GetAttr("num_tables", &num_tables));
  c->set_output(0, c->Matrix(num_tables, rows));
  return absl::OkStatus();
}

REGISTER_OP("Tfxclass>LshHash")
    .Input("vectors: float")
    .Input("seed: int64")
    .Output("codes: int32")
    .Attr(kFamily) HASH_ATTRS.SetShapeFn([](InferenceContext* c) {
      ShapeHandle vectors;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, &vectors));
      return CodesShape(c, c->Dim(vectors, 0));
    });

REGISTER_INDEX_OPS("Tfxclass>Lsh");

REGISTER_OP("Tfxclass>LshBuild")
    .Input("index: resource")
    .Input("kernel: resource")
    .Input("seed: int64") TABLE_ATTRS.SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs);

REGISTER_OP("Tfxclass>LshAdvance")
    .Input("index: resource")
    .Input("kernel: resource")
    .Input("seed: int64")
    .Input("step: int64")
    .Input("interval: int64")
    .Input("lag: int64")
    .Input("drifted: bool") TABLE_ATTRS.SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs);

REGISTER_OP("Tfxclass>LshQuery")
    .Input("index: resource")
    .Input("queries: float")
    .Input("valid: bool")
    .Input("targets: int64")
    .Input("num_sampled: int64")
    .Input("max_candidates: int64")
    .Input("seed: int64")
    .Output("candidates: int64")
    .Output("probed: int64")
    .Output("least_votes: int64")
    .Output("last_fraction: float")
    .Output("pool: int64")
    .Output("norm: float")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->Vector(c->UnknownDim()));
      c->set_output(1, c->Vector(c->UnknownDim()));
      for (int i = 2; i < 6; ++i) c->set_output(i, c->Scalar());
      return absl::OkStatus();
    });

REGISTER_OP("Tfxclass>LshMembers")
    .Input("index: resource")
    .Input("queries: float")
    .Input("valid: bool")
    .Input("probed: int64")
    .Input("least_votes: int64")
    .Input("ids: int64")
    .Output("mask: bool")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle queries, ids;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 3, &queries));
      TF_RETURN_IF_ERROR(c->WithRank(c->input(5), 1, &ids));
      c->set_output(0, c->Matrix(c->Dim(queries, 0), c->Dim(ids, 0)));
      return absl::OkStatus();
    });

}  // namespace
}  // namespace tfxclass
