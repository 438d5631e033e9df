// Densified winner-take-all hashing (Chen and Shrivastava, UAI 2018).
//
// A hash function is a bin: bin_size coordinates of a random permutation. Its
// value is the slot of the bin with the greatest value, the first of equal
// ones: ceil(log2(bin_size)) bits. A coordinate that is exactly 0 is absent, as
// it is in a sparse vector, so a vector has one code, stored dense or sparse;
// without zeros this is plain winner-take-all (Yagnik et al., ICCV 2011). A
// bin that is empty borrows the value of another bin, drawn at random from its
// number until one is not empty; after 128 draws, and for the zero vector, the
// value is 0.
//
// Each permutation is cut into dim / bin_size disjoint bins. Time: bin_size
// comparisons a function and row, 32 rows at a time; for sparse rows,
// permutations a nonzero. Thread-safe.
#ifndef TFXCLASS_CORE_DWTA_HASH_H_
#define TFXCLASS_CORE_DWTA_HASH_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "core/lane_rows.h"
#include "core/parallel.h"
#include "core/philox.h"
#include "core/simhash.h"
#include "core/vectors.h"

namespace tfxclass {

// ceil(log2(size)).
inline int CeilLog2(int64_t size) {
  int bits = 0;
  while ((int64_t{1} << bits) < size) ++bits;
  return bits;
}

class DwtaBins {
 public:
  DwtaBins() = default;
  DwtaBins(std::vector<int32_t> coordinates, int64_t bin_size, int bits,
           uint64_t seed)
      : coordinates_(std::move(coordinates)),
        bin_size_(bin_size),
        bits_(bits),
        seed_(seed) {}

  // `count` bins over `dim` coordinates; bins are no larger than `dim`.
  static DwtaBins Draw(int64_t count, int64_t dim, int64_t bin_size,
                       uint64_t seed, const ParallelFor& parallel) {
    const int64_t size = std::min(bin_size, dim), per = dim / size;
    std::vector<int32_t> coordinates(count * size);
    const int64_t num_permutations = (count + per - 1) / per;
    parallel(num_permutations, dim * 8, [&](int64_t begin, int64_t end) {
      std::vector<int32_t> permutation(dim);
      for (int64_t p = begin; p < end; ++p) {
        Philox random(seed, p);
        std::iota(permutation.begin(), permutation.end(), 0);
        const int64_t bins = std::min(per, count - p * per);
        // Its begin is all that the bins take.
        for (int64_t i = 0; i < std::min(bins * size, dim - 1); ++i) {
          std::swap(permutation[i], permutation[i + random.Below(dim - i)]);
        }
        std::copy_n(permutation.begin(), bins * size,
                    coordinates.begin() + p * per * size);
      }
    });
    return DwtaBins(std::move(coordinates), size, CeilLog2(bin_size), seed);
  }

  // [bins, bin_size].
  const std::vector<int32_t>& coordinates() const { return coordinates_; }
  int64_t bin_size() const { return bin_size_; }
  int64_t count() const { return coordinates_.size() / bin_size_; }

  // The value of bin i, which is empty; slot_of(bin) is -1 for empty ones.
  template <typename SlotOf>
  int Borrow(int64_t i, const SlotOf& slot_of) const {
    Philox random(seed_ ^ 0xB0440Full, i);
    for (int draw = 0; draw < 128; ++draw) {
      const int slot = slot_of(random.Below(count()));
      if (slot >= 0) return slot;
    }
    return 0;
  }

  // Writes the codes of tables [first, first + num) of num_hashes bins each,
  // to[table - first] [32], `stride` apart.
  void Codes(int64_t dim, int64_t num_hashes, const float* block, int64_t first,
             int64_t num, uint32_t* to, int64_t stride) const {
    for (int64_t t = first; t < first + num; ++t, to += stride) {
      CodeLanes codes;
      for (int64_t i = t * num_hashes; i < (t + 1) * num_hashes; ++i) {
        AppendSlots(dim, block, i, &codes);
      }
      codes.Store(to);
    }
  }

 private:
  void AppendSlots(int64_t dim, const float* block, int64_t i,
                   CodeLanes* codes) const {
    constexpr float kNone = -std::numeric_limits<float>::infinity();
    const int32_t* coordinates = coordinates_.data() + i * bin_size_;
    Lanes best[kBlockVectors];
    IntLanes slots[kBlockVectors] = {}, empty{};
    for (Lanes& lanes : best) lanes = Lanes{} + kNone;
    for (int32_t s = 0; s < bin_size_; ++s) {
      const float* values = block + coordinates[s] * kBlockRows;
      for (int64_t j = 0; j < kBlockVectors; ++j) {
        const Lanes x = LoadLanes(values + j * kLanes);
        const IntLanes better = (x > best[j]) & (x != Lanes{});
        best[j] = better ? x : best[j];
        slots[j] = better ? IntLanes{} + s : slots[j];
      }
    }
    for (const Lanes& lanes : best) empty |= lanes == Lanes{} + kNone;
    int32_t any = 0;
    for (int64_t j = 0; j < kLanes; ++j) any |= empty[j];
    if (any) {
      for (int64_t row = 0; row < kBlockRows; ++row) {
        if (best[row / kLanes][row % kLanes] != kNone) continue;
        slots[row / kLanes][row % kLanes] = BorrowFor(dim, block, row, i);
      }
    }
    for (int64_t j = 0; j < kBlockVectors; ++j) {
      codes->lanes[j] = (codes->lanes[j] << bits_) | slots[j];
    }
  }

  int BorrowFor(int64_t dim, const float* block, int64_t row, int64_t i) const {
    // Spares zero vectors 128 draws for each bin.
    bool is_zero = true;
    for (int64_t d = 0; d < dim && is_zero; ++d) {
      is_zero = block[d * kBlockRows + row] == 0;
    }
    if (is_zero) return 0;
    return Borrow(i, [&](int64_t bin) { return Slot(block, row, bin); });
  }

  int Slot(const float* block, int64_t row, int64_t bin) const {
    const int32_t* coordinates = coordinates_.data() + bin * bin_size_;
    int slot = -1;
    float best = 0;
    for (int64_t s = 0; s < bin_size_; ++s) {
      const float x = block[coordinates[s] * kBlockRows + row];
      if (x == 0 || (slot >= 0 && x <= best)) continue;
      best = x;
      slot = s;
    }
    return slot;
  }

  std::vector<int32_t> coordinates_;
  int64_t bin_size_ = 1;
  int bits_ = 0;
  uint64_t seed_ = 0;
};

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_DWTA_HASH_H_
