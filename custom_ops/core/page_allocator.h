// Large arrays in pages of their own, which go back to the system when freed.
//
// malloc keeps what one thread allocated and another freed for the thread that
// allocated: a forest whose trees are replaced one by one, by whichever thread
// is free, came to hold the bytes of two.
#ifndef TFXCLASS_CORE_PAGE_ALLOCATOR_H_
#define TFXCLASS_CORE_PAGE_ALLOCATOR_H_

#include <sys/mman.h>

#include <cstddef>
#include <limits>
#include <new>
#include <vector>

namespace tfxclass {

template <typename T>
struct PageAllocator {
  using value_type = T;

  PageAllocator() = default;
  template <typename U>
  PageAllocator(const PageAllocator<U>&) {}

  T* allocate(size_t count) {
    if (count > std::numeric_limits<size_t>::max() / sizeof(T)) {
      throw std::bad_alloc();
    }
    const size_t bytes = count * sizeof(T);
    if (!IsLarge(bytes)) return static_cast<T*>(::operator new(bytes));
    void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) throw std::bad_alloc();
    return static_cast<T*>(pages);
  }

  void deallocate(T* at, size_t count) {
    const size_t bytes = count * sizeof(T);
    if (IsLarge(bytes)) {
      munmap(at, bytes);
    } else {
      ::operator delete(at);
    }
  }

  template <typename U>
  bool operator==(const PageAllocator<U>&) const {
    return true;
  }
  template <typename U>
  bool operator!=(const PageAllocator<U>&) const {
    return false;
  }

 private:
  // Below, the system calls would cost more than the bytes.
  static bool IsLarge(size_t bytes) { return bytes >= size_t{1} << 16; }
};

template <typename T>
using PagedVector = std::vector<T, PageAllocator<T>>;

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_PAGE_ALLOCATOR_H_
