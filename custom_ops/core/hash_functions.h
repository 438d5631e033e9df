// The hash functions of LSH tables: num_tables codes of num_hashes functions.
//
// The code of a table is the values of its functions, bits() of them, one
// after the other. All are drawn from `seed` alone, on any threads. Memory: dim
// floats a dense plane, less for the others. Immutable once drawn.
#ifndef TFXCLASS_CORE_HASH_FUNCTIONS_H_
#define TFXCLASS_CORE_HASH_FUNCTIONS_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/bytes.h"
#include "core/dwta_hash.h"
#include "core/lane_rows.h"
#include "core/parallel.h"
#include "core/simhash.h"
#include "core/sizes.h"

namespace tfxclass {

enum class HashFamily : int32_t { kSimHash, kSparseSimHash, kDwta };

struct HashOptions {
  HashFamily family = HashFamily::kSimHash;
  int32_t bin_size = 8;  // of DWTA
  int64_t num_hashes = 9, num_tables = 50;
  uint64_t seed = 0;

  int64_t count() const { return num_hashes * num_tables; }
  int function_bits() const {
    return family == HashFamily::kDwta ? CeilLog2(bin_size) : 1;
  }
  int bits() const { return function_bits() * num_hashes; }
  // Numbers that are drawn for vectors of `dim` coordinates.
  int64_t drawn(int64_t dim) const {
    const bool is_dwta = family == HashFamily::kDwta;
    return SaturatedProduct(count(),
                            is_dwta ? std::min<int64_t>(bin_size, dim) : dim);
  }
  bool operator==(const HashOptions& other) const {
    return family == other.family && bin_size == other.bin_size &&
           num_hashes == other.num_hashes && num_tables == other.num_tables &&
           seed == other.seed;
  }
};

constexpr int kMostCodeBits = 30;
constexpr int64_t kMostTables = UINT16_MAX;  // votes are counted in 16 bits
constexpr int64_t kMostDrawn = int64_t{1} << 31;  // 8 GiB, half a minute

class HashFunctions {
 public:
  HashFunctions() = default;

  // bits() <= kMostCodeBits, drawn(dim) <= kMostDrawn, all sizes >= 1, bins
  // >= 2.
  HashFunctions(const HashOptions& options, int64_t dim,
                const ParallelFor& parallel = SerialFor)
      : options_(options), dim_(dim) {
    const int64_t count = options.count();
    if (options.family == HashFamily::kSimHash) {
      planes_ = DrawGaussianPlanes(count, dim, options.seed, parallel);
    } else if (options.family == HashFamily::kSparseSimHash) {
      sparse_ = DrawSparsePlanes(count, dim, options.seed, parallel);
    } else {
      bins_ =
          DwtaBins::Draw(count, dim, options.bin_size, options.seed, parallel);
    }
  }

  const HashOptions& options() const { return options_; }
  int64_t dim() const { return dim_; }
  const std::vector<float>& planes() const { return planes_; }
  const SparsePlanes& sparse_planes() const { return sparse_; }
  const DwtaBins& bins() const { return bins_; }

  // Codes of a block's rows for tables [first, first + num), each [32] at
  // to + (table - first) * stride.
  void Codes(const float* block, int64_t first, int64_t num, uint32_t* to,
             int64_t stride) const {
    const int64_t hashes = options_.num_hashes;
    if (options_.family == HashFamily::kSimHash) {
      DenseSimHashCodes(planes_, dim_, hashes, block, first, num, to, stride);
    } else if (options_.family == HashFamily::kSparseSimHash) {
      SparseSimHashCodes(sparse_, dim_, hashes, block, first, num, to, stride);
    } else {
      bins_.Codes(dim_, hashes, block, first, num, to, stride);
    }
  }

  // Nanoseconds, roughly, of a row's code for one table.
  int64_t Cost() const {
    const int64_t of_function =
        options_.family == HashFamily::kDwta ? options_.bin_size : dim_;
    return options_.num_hashes * (of_function / 16 + 1);
  }

  void Write(ByteWriter* out) const {
    out->Put(options_);
    out->Put(dim_);
    out->PutAll(planes_);
    out->PutAll(sparse_.coordinates);
    out->PutAll(sparse_.num_positive);
    out->PutAll(bins_.coordinates());
  }

  // False if the bytes are no hash functions.
  bool Read(ByteReader* in) {
    std::vector<int32_t> coordinates;
    if (!in->Get(&options_) || !in->Get(&dim_) || !in->GetAll(&planes_) ||
        !in->GetAll(&sparse_.coordinates) ||
        !in->GetAll(&sparse_.num_positive) || !in->GetAll(&coordinates) ||
        !IsSound(coordinates)) {
      return false;
    }
    const int64_t bin = std::min<int64_t>(options_.bin_size, dim_);
    bins_ = DwtaBins(std::move(coordinates), bin, options_.function_bits(),
                     options_.seed);
    return true;
  }

 private:
  static bool AreIn(const std::vector<int32_t>& values, int64_t lowest,
                    int64_t bound) {
    for (const int32_t value : values) {
      if (value < lowest || value >= bound) return false;
    }
    return true;
  }

  // Whether no index leads out of an array. Sizes are checked by division, for
  // products of garbage overflow.
  bool IsSound(const std::vector<int32_t>& coordinates) const {
    const HashFamily family = options_.family;
    const int64_t hashes = options_.num_hashes, tables = options_.num_tables;
    if (dim_ < 1 || dim_ > INT32_MAX || hashes < 1 || hashes > kMostCodeBits ||
        tables < 1 || tables > kMostTables || options_.bin_size < 2 ||
        options_.bits() > kMostCodeBits || options_.drawn(dim_) > kMostDrawn) {
      return false;
    }
    const uint64_t count = options_.count();
    const auto holds = [&](size_t size, int64_t each, bool used) {
      return used ? size / each == count && size % each == 0 : size == 0;
    };
    const int64_t size = SparsePlaneSize(dim_);
    const bool is_sparse = family == HashFamily::kSparseSimHash;
    return holds(planes_.size(), dim_, family == HashFamily::kSimHash) &&
           holds(sparse_.coordinates.size(), size, is_sparse) &&
           holds(sparse_.num_positive.size(), 1, is_sparse) &&
           holds(coordinates.size(), std::min<int64_t>(options_.bin_size, dim_),
                 family == HashFamily::kDwta) &&
           family >= HashFamily::kSimHash && family <= HashFamily::kDwta &&
           AreIn(sparse_.num_positive, 0, size + 1) &&
           AreIn(sparse_.coordinates, 0, dim_) && AreIn(coordinates, 0, dim_);
  }

  HashOptions options_;
  int64_t dim_ = 0;
  std::vector<float> planes_;  // [functions, dim]
  SparsePlanes sparse_;
  DwtaBins bins_;
};

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_HASH_FUNCTIONS_H_
