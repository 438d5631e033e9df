// Arrays of marks, one for each class, that the queries of an index share.
//
// A query borrows an array, all zero, and gives it back all zero. The pool
// makes an array where all that it has are lent. So it holds as many as there
// were queries at once, one for each thread, and frees them with its index. A
// loan takes one lock. Thread-safe.
#ifndef TFXCLASS_CORE_MARK_POOL_H_
#define TFXCLASS_CORE_MARK_POOL_H_

#include <cstddef>
#include <exception>
#include <list>
#include <mutex>

#include "core/page_allocator.h"

namespace tfxclass {

template <class Mark>
class MarkPool {
 public:
  // An array that belongs to one thread. The pool must outlive it.
  class Loan {
   public:
    Loan(MarkPool* pool, size_t count)
        : pool_(*pool), thrown_(std::uncaught_exceptions()) {
      {
        std::lock_guard<std::mutex> lock(pool_.mutex_);
        if (!pool_.idle_.empty()) Move(&pool_.idle_, &array_);
      }
      // The index may have other rows by now.
      if (!array_.empty() && array_.front().size() != count) array_.clear();
      if (array_.empty()) array_.emplace_back(count);
    }
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;

    // Where an exception ended the use of the array, it may have marks: it is
    // freed.
    ~Loan() {
      if (std::uncaught_exceptions() > thrown_) return;
      std::lock_guard<std::mutex> lock(pool_.mutex_);
      Move(&array_, &pool_.idle_);
    }

    Mark* data() { return array_.front().data(); }

   private:
    MarkPool& pool_;
    const int thrown_;
    std::list<PagedVector<Mark>> array_;  // one
  };

  // Arrays that nobody uses.
  size_t num_idle() {
    std::lock_guard<std::mutex> lock(mutex_);
    return idle_.size();
  }

 private:
  using Arrays = std::list<PagedVector<Mark>>;

  // Moves the first array. Needs no memory.
  static void Move(Arrays* from, Arrays* to) {
    to->splice(to->begin(), *from, from->begin());
  }

  std::mutex mutex_;
  Arrays idle_;  // the last one used comes first: caches have most of it
};

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_MARK_POOL_H_
