// Flat bytes of an index and back; the same machine type on both sides.
//
// A reader never reads past the end nor allocates more than the bytes it has
// could fill: what a Get returns false for is no index.
#ifndef TFXCLASS_CORE_BYTES_H_
#define TFXCLASS_CORE_BYTES_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace tfxclass {

class ByteWriter {
 public:
  template <typename T>
  void Put(const T& value) {
    static_assert(std::is_trivially_copyable<T>::value, "flat types only");
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }

  template <typename T, typename A>
  void PutAll(const std::vector<T, A>& values) {
    static_assert(std::is_trivially_copyable<T>::value, "flat types only");
    Put(static_cast<int64_t>(values.size()));
    bytes_.append(reinterpret_cast<const char*>(values.data()),
                  values.size() * sizeof(T));
  }

  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class ByteReader {
 public:
  ByteReader(const char* data, size_t size) : data_(data), left_(size) {}

  template <typename T>
  bool Get(T* value) {
    if (left_ < sizeof(T)) return false;
    std::memcpy(value, data_, sizeof(T));
    Skip(sizeof(T));
    return true;
  }

  template <typename T, typename A>
  bool GetAll(std::vector<T, A>* values) {
    int64_t count;
    if (!Get(&count) || count < 0 ||
        static_cast<uint64_t>(count) > left_ / sizeof(T)) {
      return false;
    }
    values->resize(count);
    if (count == 0) return true;  // memcpy takes no null
    std::memcpy(values->data(), data_, count * sizeof(T));
    Skip(count * sizeof(T));
    return true;
  }

  size_t left() const { return left_; }

 private:
  void Skip(size_t size) {
    data_ += size;
    left_ -= size;
  }

  const char* data_;
  size_t left_;
};

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_BYTES_H_
