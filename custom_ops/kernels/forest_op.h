// What the ops of the hashing forest share, wherever its rows lie.
#ifndef TFXCLASS_KERNELS_FOREST_OP_H_
#define TFXCLASS_KERNELS_FOREST_OP_H_

#include <algorithm>

#include "core/forest_indexer.h"
#include "core/forest_query.h"
#include "kernels/index_op.h"

namespace tfxclass {

// Inputs `num_trees` and `leaf_size`. Trees are counted in 32 bits, and so are
// the rows, more of which no leaf has.
inline absl::Status ReadForestOptions(tensorflow::OpKernelContext* c,
                                      ForestOptions* options) {
  TF_RETURN_IF_ERROR(
      ReadInteger(c, "num_trees", 1, INT32_MAX, &options->num_trees));
  TF_RETURN_IF_ERROR(
      ReadInteger(c, "leaf_size", 1, INT64_MAX, &options->leaf_size));
  options->leaf_size = std::min<int64_t>(options->leaf_size, INT32_MAX);
  return absl::OkStatus();
}

// Attribute `sketch`; GPUs walk with the queries as they are.
template <class RowReader>
absl::Status GetSketch(tensorflow::OpKernelConstruction* c, int64_t* sketch) {
  TF_RETURN_IF_ERROR(c->GetAttr("sketch", sketch));
  if (*sketch == 0 || RowReader::kInPlace) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("A forest on a GPU has no `sketch`. Received: ", *sketch));
}

template <class RowReader>
class ForestBuildOp : public tensorflow::OpKernel {
 public:
  explicit ForestBuildOp(tensorflow::OpKernelConstruction* c) : OpKernel(c) {
    OP_REQUIRES_OK(c, GetSketch<RowReader>(c, &sketch_));
  }

  void Compute(tensorflow::OpKernelContext* c) override {
    ForestOptions options;
    int64_t seed;
    OP_REQUIRES_OK(c, ReadForestOptions(c, &options));
    OP_REQUIRES_OK(c, ReadScalar(c, "seed", &seed));
    options.seed = seed;
    options.sketch = sketch_;
    OP_REQUIRES_OK(c, (BuildIndex<ForestIndexer, RowReader>(c, options)));
  }

 private:
  int64_t sketch_;
};

template <class RowReader>
class ForestAdvanceOp : public tensorflow::OpKernel {
 public:
  explicit ForestAdvanceOp(tensorflow::OpKernelConstruction* c) : OpKernel(c) {
    OP_REQUIRES_OK(c, GetSketch<RowReader>(c, &sketch_));
  }

  void Compute(tensorflow::OpKernelContext* c) override {
    ForestOptions options;
    RefreshSteps steps;
    int64_t seed;
    OP_REQUIRES_OK(c, ReadRefreshSteps(c, &steps));
    OP_REQUIRES_OK(c, ReadForestOptions(c, &options));
    OP_REQUIRES_OK(c, ReadScalar(c, "seed", &seed));
    options.seed = SeedOfStep(seed, steps.step);
    options.one_by_one = RowReader::kInPlace;
    options.sketch = sketch_;
    OP_REQUIRES_OK(c,
                   (AdvanceIndex<ForestIndexer, RowReader>(c, steps, options)));
  }

 private:
  int64_t sketch_;
};

// Inputs: forest, kernel, queries, num_neighbors, bucket, num_candidates.
inline absl::Status ReadForestQuery(tensorflow::OpKernelContext* c,
                                    QueryOptions* options) {
  TF_RETURN_IF_ERROR(CheckRank("queries", c->input(2), 2));
  TF_RETURN_IF_ERROR(
      PositiveScalars(c, {"num_neighbors"}, &options->num_neighbors));
  TF_RETURN_IF_ERROR(ReadInteger(c, "bucket", 0, INT64_MAX, &options->bucket));
  return ReadInteger(c, "num_candidates", 0, INT64_MAX,
                     &options->num_candidates);
}

inline absl::Status CheckForest(const HashingForest& forest,
                                const tensorflow::Tensor& rows,
                                const tensorflow::Tensor& queries,
                                bool may_be_half) {
  TF_RETURN_IF_ERROR(CheckKernel(ForestIndexer::kName, rows, may_be_half));
  if (rows.dim_size(0) == forest.count && rows.dim_size(1) == forest.dim &&
      queries.dim_size(1) == forest.dim) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "The forest is for a kernel of shape (", forest.count, ", ", forest.dim,
      "). Received: kernel of shape ", ShapeText(rows.shape()),
      ", queries of shape ", ShapeText(queries.shape())));
}

class ForestQueryOp : public tensorflow::OpKernel {
 public:
  explicit ForestQueryOp(tensorflow::OpKernelConstruction* c) : OpKernel(c) {
    OP_REQUIRES_OK(c, c->GetAttr("normalize", &normalize_));
  }

  void Compute(tensorflow::OpKernelContext* c) override {
    tensorflow::core::RefCountPtr<IndexResource<ForestIndexer>> resource;
    tensorflow::core::RefCountPtr<tensorflow::Var> kernel;
    OP_REQUIRES_OK(c, LookupIndex(c, &resource));
    OP_REQUIRES_OK(c, LookupVariable(c, 1, &kernel));
    QueryOptions options;
    OP_REQUIRES_OK(c, ReadForestQuery(c, &options));
    options.normalize = normalize_;
    const tensorflow::Tensor& queries = c->input(2);
    const int64_t batch = queries.dim_size(0);
    Found found;
    for (int i = 0; i < 2; ++i) {
      OP_REQUIRES_OK(c, AllocateOutput(c, i, {batch, options.num_neighbors},
                                       i == 0 ? &found.ids : &found.scores));
    }
    const auto forest = resource->index.ready();
    if (forest == nullptr) {
      OP_REQUIRES_OK(c, FindNothing(c, found));
      return;
    }
    tensorflow::tf_shared_lock lock(*kernel->mu());
    const tensorflow::Tensor& rows = *kernel->tensor();
    OP_REQUIRES_OK(c, CheckForest(*forest, rows, queries, is_on_host()));
    OP_REQUIRES_OK(c, Find(c, resource.get(), forest, rows, options, found));
  }

 protected:
  using Forest = Refreshing<ForestIndexer>::Shared;
  struct Found {
    tensorflow::Tensor *ids, *scores;  // [batch, num_neighbors]
  };

 private:
  virtual bool is_on_host() const = 0;
  // Ids -1 and scores 0.
  virtual absl::Status FindNothing(tensorflow::OpKernelContext* c,
                                   const Found& found) = 0;
  // Of the queries, input 2.
  virtual absl::Status Find(tensorflow::OpKernelContext* c,
                            IndexResource<ForestIndexer>* resource,
                            const Forest& forest,
                            const tensorflow::Tensor& rows,
                            const QueryOptions& options,
                            const Found& found) = 0;

  bool normalize_;
};

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_FOREST_OP_H_
