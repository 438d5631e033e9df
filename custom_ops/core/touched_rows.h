// The class rows that changed since an index last read them.
//
// O(1) an id; one bit a class. Not thread-safe.
#ifndef TFXCLASS_CORE_TOUCHED_ROWS_H_
#define TFXCLASS_CORE_TOUCHED_ROWS_H_

#include <cstdint>
#include <vector>

namespace tfxclass {

class TouchedRows {
 public:
  // Ids >= 0.
  void Mark(const int64_t* ids, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const uint64_t word = ids[i] >> 6;
      if (word >= words_.size()) words_.resize(word + 1, 0);
      words_[word] |= uint64_t{1} << (ids[i] & 63);
    }
  }

  bool Contains(int64_t id) const {
    const uint64_t word = id >> 6;
    return word < words_.size() && (words_[word] >> (id & 63) & 1);
  }

  // Those below `bound`, rising. (Anything may be marked, whatever rows there
  // are.)
  std::vector<int64_t> Ids(int64_t bound = INT64_MAX) const {
    std::vector<int64_t> ids;
    for (uint64_t word = 0; word < words_.size(); ++word) {
      for (uint64_t bits = words_[word]; bits != 0; bits &= bits - 1) {
        const int64_t id = word * 64 + __builtin_ctzll(bits);
        if (id >= bound) return ids;
        ids.push_back(id);
      }
    }
    return ids;
  }

  // Moves what is marked in `other` here. Needs no memory.
  void Absorb(TouchedRows* other) {
    if (words_.size() < other->words_.size()) words_.swap(other->words_);
    for (size_t i = 0; i < other->words_.size(); ++i) {
      words_[i] |= other->words_[i];
    }
    other->Clear();
  }

  void Clear() { words_.clear(); }

 private:
  std::vector<uint64_t> words_;
};

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_TOUCHED_ROWS_H_
