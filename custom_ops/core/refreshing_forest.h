// A hashing forest that follows the class rows while they are trained.
//
// Every `interval` steps a snapshot of the rows is taken and a new forest is
// built from it by a thread of its own, while steps go on with the old one;
// the new one takes its place exactly `interval` steps later, waited for if
// need be. So what a step sees depends on the step number alone, never on
// timing. Memory: two forests and 6 dim bytes a row for the snapshot.
//
// Thread-safe. The one place that starts a thread: a build of seconds must not
// hold a thread of the pool that the steps compute on.
#ifndef TFXCLASS_CORE_REFRESHING_FOREST_H_
#define TFXCLASS_CORE_REFRESHING_FOREST_H_

#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/hashing_forest.h"

namespace tfxclass {

// Flat bytes of a forest and back; the same machine type on both sides.
class ForestBytes {
 public:
  static std::string Write(const HashingForest& forest) {
    ForestBytes out;
    out.Put(forest.count);
    out.Put(forest.dim);
    out.Put(static_cast<int64_t>(forest.trees.size()));
    for (const HashingTree& tree : forest.trees) {
      out.PutAll(tree.nodes);
      out.PutAll(tree.ids);
      out.PutAll(tree.normals.values);
      out.PutAll(tree.normals.rounding);
    }
    return std::move(out.bytes_);
  }

  // False if the bytes are no forest.
  static bool Read(const char* data, size_t size, HashingForest* forest) {
    ForestBytes in;
    in.data_ = data;
    in.left_ = size;
    int64_t num_trees;
    if (!in.Get(&forest->count) || !in.Get(&forest->dim) ||
        !in.Get(&num_trees) || forest->count < 1 || forest->dim < 1 ||
        forest->dim > INT32_MAX || num_trees < 0 ||
        num_trees > static_cast<int64_t>(size / kLeastTreeBytes)) {
      return false;
    }
    forest->padded = PaddedDim(forest->dim);
    forest->trees.resize(num_trees);
    for (HashingTree& tree : forest->trees) {
      tree.normals.padded = (forest->padded + 15) / 16 * 16;
      if (!in.GetAll(&tree.nodes) || !in.GetAll(&tree.ids) ||
          !in.GetAll(&tree.normals.values) ||
          !in.GetAll(&tree.normals.rounding) || !IsSound(*forest, tree)) {
        return false;
      }
    }
    return in.left_ == 0;
  }

 private:
  // Four lengths and a node.
  static constexpr size_t kLeastTreeBytes =
      4 * sizeof(int64_t) + sizeof(ForestNode);

  // No index may lead a query out of its arrays, no product past 32 bits.
  static bool IsSound(const HashingForest& forest, const HashingTree& tree) {
    const int32_t num_nodes = tree.nodes.size();
    const int64_t planes = tree.normals.count();
    if (static_cast<int64_t>(tree.ids.size()) != forest.count ||
        static_cast<int64_t>(tree.normals.values.size()) !=
            planes * tree.normals.padded ||
        num_nodes == 0) {
      return false;
    }
    for (int32_t n = 0; n < num_nodes; ++n) {
      const ForestNode& node = tree.nodes[n];
      if (node.begin < 0 || node.end < node.begin || node.end > forest.count ||
          node.plane >= planes ||
          (node.child >= 0 && (node.child <= n || node.child >= num_nodes - 1)))
        return false;
    }
    for (const int32_t id : tree.ids) {
      if (id < 0 || id >= forest.count) return false;
    }
    const int most = RoundingLevels(forest.padded);
    for (const int16_t value : tree.normals.values) {
      if (value > most || value < -most) return false;
    }
    return true;
  }

  template <typename T>
  void Put(const T& value) {
    static_assert(std::is_trivially_copyable<T>::value, "flat types only");
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }

  template <typename T>
  void PutAll(const std::vector<T>& values) {
    static_assert(std::is_trivially_copyable<T>::value, "flat types only");
    Put(static_cast<int64_t>(values.size()));
    bytes_.append(reinterpret_cast<const char*>(values.data()),
                  values.size() * sizeof(T));
  }

  template <typename T>
  bool Get(T* value) {
    if (left_ < sizeof(T)) return false;
    std::memcpy(value, data_, sizeof(T));
    data_ += sizeof(T);
    left_ -= sizeof(T);
    return true;
  }

  template <typename T>
  bool GetAll(std::vector<T>* values) {
    int64_t count;
    if (!Get(&count) || count < 0 ||
        static_cast<uint64_t>(count) > left_ / sizeof(T)) {
      return false;
    }
    values->resize(count);
    if (count == 0) return true;  // memcpy takes no null
    std::memcpy(values->data(), data_, count * sizeof(T));
    data_ += count * sizeof(T);
    left_ -= count * sizeof(T);
    return true;
  }

  std::string bytes_;
  const char* data_ = nullptr;
  size_t left_ = 0;
};

class RefreshingForest {
 public:
  using Shared = std::shared_ptr<const HashingForest>;

  // What is saved with a model. Ready and pending are empty where there is no
  // such forest.
  struct State {
    std::string ready, pending;
    int64_t swap_at = 0, next_start = 0;
  };

  ~RefreshingForest() { Join(); }

  // The forest that queries use; null before the first one is ready.
  Shared ready() {
    std::lock_guard<std::mutex> lock(mutex_);
    return ready_;
  }

  // Builds from these rows now. False if they are not finite.
  bool Build(const float* kernel, int64_t count, int64_t dim,
             const ForestOptions& options, const ParallelFor& parallel) {
    std::lock_guard<std::mutex> lock(mutex_);
    Join();
    pending_ = nullptr;
    if (!NormalizeRows(kernel, count, dim, parallel, &rows_)) return false;
    rows_.rounded.Assign(rows_.values.data(), count, rows_.padded);
    ready_ =
        std::make_shared<HashingForest>(BuildForest(rows_, options, parallel));
    return true;
  }

  // Swaps and starts what is due at `step`. False if rows are not finite.
  bool Advance(int64_t step, int64_t interval, const float* kernel,
               int64_t count, int64_t dim, const ForestOptions& options,
               const ParallelFor& parallel) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (pending_ && step >= swap_at_) {
      Join();
      ready_ = std::move(pending_);
      pending_ = nullptr;
    }
    if (step < next_start_) return true;
    Join();
    next_start_ = swap_at_ = step + interval;
    if (!NormalizeRows(kernel, count, dim, parallel, &rows_)) return false;
    auto next = std::make_shared<HashingForest>();
    pending_ = next;
    worker_ = std::thread([this, next, options] {
      rows_.rounded.Assign(rows_.values.data(), rows_.count, rows_.padded);
      *next = BuildForest(rows_, options, SerialFor);
    });
    return true;
  }

  State Save() {
    std::lock_guard<std::mutex> lock(mutex_);
    Join();
    State state;
    if (ready_) state.ready = ForestBytes::Write(*ready_);
    if (pending_) state.pending = ForestBytes::Write(*pending_);
    state.swap_at = swap_at_;
    state.next_start = next_start_;
    return state;
  }

  // False, with nothing changed, if the bytes are no forest.
  bool Restore(const State& state) {
    Shared ready, pending;
    if (!ReadShared(state.ready, &ready) ||
        !ReadShared(state.pending, &pending)) {
      return false;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    Join();
    ready_ = std::move(ready);
    pending_ = std::move(pending);
    swap_at_ = state.swap_at;
    next_start_ = state.next_start;
    return true;
  }

 private:
  static bool ReadShared(const std::string& bytes, Shared* forest) {
    if (bytes.empty()) return true;
    auto read = std::make_shared<HashingForest>();
    if (!ForestBytes::Read(bytes.data(), bytes.size(), read.get())) {
      return false;
    }
    *forest = std::move(read);
    return true;
  }

  void Join() {
    if (worker_.joinable()) worker_.join();
  }

  std::mutex mutex_;
  std::thread worker_;
  ForestRows rows_;  // kept: fresh pages cost more than the copy
  Shared ready_, pending_;
  int64_t swap_at_ = 0, next_start_ = 0;
};

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_REFRESHING_FOREST_H_
