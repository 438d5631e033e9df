// A set of class ids that remembers the order of insertion.
//
// Open addressing with linear probing; O(1) an insertion, 16 bytes times twice
// the capacity (a power of two). Memory follows the ids held, never the
// number of classes. Not thread-safe.
#ifndef TFXCLASS_CORE_ID_SET_H_
#define TFXCLASS_CORE_ID_SET_H_

#include <cstdint>
#include <vector>

namespace tfxclass {

class IdSet {
 public:
  // At most `capacity` ids will be inserted.
  explicit IdSet(int64_t capacity) {
    int bits = 4;
    while (bits < 62 && (int64_t{1} << bits) / 2 < capacity) ++bits;
    shift_ = 64 - bits;
    slots_.assign(int64_t{1} << bits, Slot{-1, -1});
    ids_.reserve(capacity);
  }

  // The position of id in order of insertion; inserts it when new.
  int64_t Insert(int64_t id) {
    Slot& slot = slots_[Find(id)];
    if (IsFree(slot)) {
      slot = Slot{id, cleared_ + static_cast<int64_t>(ids_.size())};
      ids_.push_back(id);
    }
    return slot.position - cleared_;
  }

  // Empties it, at once: slots that were taken before count as free.
  void Clear() {
    cleared_ += ids_.size();
    ids_.clear();
  }

  bool Contains(int64_t id) const { return Position(id) >= 0; }
  // Of an id in order of insertion; -1 if it is not in.
  int64_t Position(int64_t id) const {
    const Slot& slot = slots_[Find(id)];
    return IsFree(slot) ? -1 : slot.position - cleared_;
  }
  int64_t size() const { return ids_.size(); }
  int64_t capacity() const { return slots_.size() / 2; }
  const std::vector<int64_t>& ids() const { return ids_; }

 private:
  struct Slot {
    int64_t id, position;  // the ids inserted before it, cleared ones too
  };

  bool IsFree(const Slot& slot) const { return slot.position < cleared_; }

  // Of the id, or of the free slot where it goes.
  uint64_t Find(int64_t id) const {
    const uint64_t mask = slots_.size() - 1;
    uint64_t h = (static_cast<uint64_t>(id) * 0x9E3779B97F4A7C15ull) >> shift_;
    while (!IsFree(slots_[h]) && slots_[h].id != id) h = (h + 1) & mask;
    return h;
  }

  int shift_;
  int64_t cleared_ = 0;
  std::vector<Slot> slots_;
  std::vector<int64_t> ids_;
};

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_ID_SET_H_
