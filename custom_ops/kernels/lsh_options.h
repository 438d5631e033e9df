// The attributes that name hash functions, checked.
#ifndef TFXCLASS_KERNELS_LSH_OPTIONS_H_
#define TFXCLASS_KERNELS_LSH_OPTIONS_H_

#include <string>

#include "core/hash_functions.h"
#include "kernels/kernel_utils.h"

namespace tfxclass {

inline absl::Status GetHashOptions(tensorflow::OpKernelConstruction* c,
                                   HashOptions* options) {
  int64_t bin_size;
  TF_RETURN_IF_ERROR(c->GetAttr("num_hashes", &options->num_hashes));
  TF_RETURN_IF_ERROR(c->GetAttr("num_tables", &options->num_tables));
  TF_RETURN_IF_ERROR(c->GetAttr("bin_size", &bin_size));
  if (bin_size > INT32_MAX || options->num_tables > kMostTables ||
      options->num_hashes > kMostCodeBits) {
    return absl::InvalidArgumentError(absl::StrCat(
        "`num_hashes` must be at most ", kMostCodeBits,
        ", `num_tables` at most ", kMostTables,
        " and `bin_size` below 2^31. Received: ", options->num_hashes, ", ",
        options->num_tables, " and ", bin_size));
  }
  options->bin_size = bin_size;
  if (options->bits() > kMostCodeBits) {
    return absl::InvalidArgumentError(absl::StrCat(
        "A code of `num_hashes` functions takes at most ", kMostCodeBits,
        " bits. Received: num_hashes=", options->num_hashes, " of ",
        options->function_bits(), " bits"));
  }
  return absl::OkStatus();
}

// Of functions for vectors of `dim` coordinates.
inline absl::Status CheckDrawn(const HashOptions& options, int64_t dim) {
  if (options.drawn(dim) <= kMostDrawn) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "Hash functions must take at most 2^31 numbers: `num_tables` times "
      "`num_hashes` times the width of the vectors (of `dwta`: times "
      "`bin_size`). Received: num_tables=",
      options.num_tables, ", num_hashes=", options.num_hashes,
      " and a width of ", dim));
}

inline absl::Status GetHashFamily(tensorflow::OpKernelConstruction* c,
                                  HashOptions* options) {
  std::string hash;
  TF_RETURN_IF_ERROR(c->GetAttr("hash", &hash));
  options->family = hash == "simhash"          ? HashFamily::kSimHash
                    : hash == "sparse_simhash" ? HashFamily::kSparseSimHash
                                               : HashFamily::kDwta;
  return GetHashOptions(c, options);
}

// Vectors [count, dim] to hash.
inline absl::Status CheckHashed(const tensorflow::Tensor& vectors) {
  TF_RETURN_IF_ERROR(CheckRank("vectors", vectors, 2));
  const int64_t dim = vectors.dim_size(1);
  if (dim >= 1 && dim <= INT32_MAX) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("`vectors` must have 1 to 2^31 - 1 coordinates. Received: "
                   "shape ",
                   ShapeText(vectors.shape())));
}

// Inputs: vectors [count, dim], seed. Output: codes [num_tables, count].
class LshHashOp : public tensorflow::OpKernel {
 public:
  explicit LshHashOp(tensorflow::OpKernelConstruction* c) : OpKernel(c) {
    OP_REQUIRES_OK(c, GetHashFamily(c, &options_));
  }

  void Compute(tensorflow::OpKernelContext* c) override {
    const tensorflow::Tensor& vectors = c->input(0);
    OP_REQUIRES_OK(c, CheckHashed(vectors));
    HashOptions options = options_;
    int64_t seed;
    OP_REQUIRES_OK(c, ReadScalar(c, "seed", &seed));
    OP_REQUIRES_OK(c, CheckDrawn(options, vectors.dim_size(1)));
    options.seed = seed;
    tensorflow::Tensor* codes;
    OP_REQUIRES_OK(
        c, AllocateOutput(c, 0, {options.num_tables, vectors.dim_size(0)},
                          &codes));
    const HashFunctions functions(options, vectors.dim_size(1), PoolOf(c));
    OP_REQUIRES_OK(c, Hash(c, functions, vectors, codes));
  }

 private:
  virtual absl::Status Hash(tensorflow::OpKernelContext* c,
                            const HashFunctions& functions,
                            const tensorflow::Tensor& vectors,
                            tensorflow::Tensor* codes) = 0;

  HashOptions options_;
};

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_LSH_OPTIONS_H_
