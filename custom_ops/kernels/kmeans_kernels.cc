// CPU kernels of k-means.
#include <limits>
#include <vector>

#include "core/balanced_halves.h"
#include "core/cluster_builder.h"
#include "kernels/index_op.h"

namespace tfxclass {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// Directions of the rows of input 0, [n, dim].
absl::Status Directions(OpKernelContext* c, PaddedRows* rows) {
  const Tensor& values = c->input(0);
  TF_RETURN_IF_ERROR(CheckRank("rows", values, 2));
  if (values.NumElements() == 0 || values.dim_size(0) > INT32_MAX) {
    return absl::InvalidArgumentError(
        absl::StrCat("`rows` must have 1 to ", INT32_MAX,
                     " rows, of one column or more. Received: shape ",
                     ShapeText(values.shape())));
  }
  if (CopyRows(RowsOf(values), nullptr, values.dim_size(0), /*normalize=*/true,
               PoolOf(c), rows)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "`rows` must be finite, and so their norms. Received: NaN, infinity or "
      "greater than 1e19");
}

class KMeansOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* c) override {
    PaddedRows rows;
    int64_t num_clusters, seed;
    OP_REQUIRES_OK(c,
                   ReadInteger(c, "num_clusters", 1, INT32_MAX, &num_clusters));
    OP_REQUIRES_OK(c, ReadScalar(c, "seed", &seed));
    OP_REQUIRES_OK(c, Directions(c, &rows));
    Tensor* clusters;
    OP_REQUIRES_OK(c, AllocateOutput(c, 0, {rows.count}, &clusters));
    const ParallelFor parallel = PoolOf(c);
    const RowGroups groups =
        ClusterBuilder(rows, num_clusters, seed, parallel).Build();
    std::copy(groups.group_of.begin(), groups.group_of.end(),
              clusters->flat<int64_t>().data());
  }
};

// Inputs: rows, ids, sizes, splits, passes, seed. Output: ids.
class HalveGroupsOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* c) override {
    PaddedRows rows;
    std::vector<int64_t> starts, sizes;
    int64_t passes, seed;
    OP_REQUIRES_OK(c, ReadInteger(c, "passes", 1, INT32_MAX, &passes));
    OP_REQUIRES_OK(c, ReadScalar(c, "seed", &seed));
    OP_REQUIRES_OK(c, Groups(c, &starts, &sizes));
    OP_REQUIRES_OK(c, Directions(c, &rows));
    OP_REQUIRES_OK(c, CheckIds("ids", c->input(1), rows.count));
    Tensor* ids;
    OP_REQUIRES_OK(c, c->allocate_output(0, c->input(1).shape(), &ids));
    int64_t* out = ids->flat<int64_t>().data();
    std::copy_n(c->input(1).flat<int64_t>().data(), ids->NumElements(), out);
    HalveGroups(rows, starts, sizes, passes, seed, PoolOf(c), out);
  }

 private:
  // Of the groups that are to be split.
  static absl::Status Groups(OpKernelContext* c, std::vector<int64_t>* starts,
                             std::vector<int64_t>* sizes) {
    TF_RETURN_IF_ERROR(CheckRank("ids", c->input(1), 1));
    TF_RETURN_IF_ERROR(CheckRank("sizes", c->input(2), 1));
    if (c->input(3).shape() != c->input(2).shape()) {
      return absl::InvalidArgumentError(
          absl::StrCat("`splits` must have the shape of `sizes`, ",
                       ShapeText(c->input(2).shape()), ". Received: shape ",
                       ShapeText(c->input(3).shape())));
    }
    const auto all = c->input(2).flat<int64_t>();
    const auto splits = c->input(3).flat<bool>();
    const int64_t count = c->input(1).NumElements();
    int64_t seen = 0;
    for (int64_t g = 0; g < all.size(); ++g) {
      if (all(g) < 0 || all(g) > count - seen) {
        return absl::InvalidArgumentError(absl::StrCat(
            "`sizes` must not be negative, and add up to the ", count,
            " of `ids`. Received: ", all(g), " at position ", g));
      }
      if (splits(g)) {
        starts->push_back(seen);
        sizes->push_back(all(g));
      }
      seen += all(g);
    }
    if (seen == count) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("`sizes` must add up to the ", count,
                     " of `ids`. Received: a sum of ", seen));
  }
};

TFXCLASS_CPU("KMeans", KMeansOp);
TFXCLASS_CPU("HalveGroups", HalveGroupsOp);

}  // namespace
}  // namespace tfxclass
