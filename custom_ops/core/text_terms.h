// The terms of a text: runs of words, or of characters within words, hashed
// and counted as the stock TensorFlow ops of tfxclass/ops/terms.py do it.
//
// Letters of ASCII are lower-cased, other ASCII but digits parts words, and
// bytes of 0x80 and more belong to words: a text that is all ASCII is read as
// it is, one that is not after its letters were lower-cased elsewhere.
// Time O(bytes + words x longest), memory the text's terms; a TermCounter is
// for one thread.
#ifndef TFXCLASS_CORE_TEXT_TERMS_H_
#define TFXCLASS_CORE_TEXT_TERMS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tfxclass {

struct TermOptions {
  bool of_chars = false;
  int64_t shortest = 1, longest = 1;
};

struct CountedTerms {
  std::vector<int64_t> hashes;  // Each once, as they come; short runs first.
  std::vector<float> counts;
};

namespace internal {

constexpr uint64_t kTermFactor = 0x9E3779B97F4A7C15ull;

// The byte of a word that `c` is, or a space.
inline char WordByte(char c) {
  if (c >= 'A' && c <= 'Z') return c + ('a' - 'A');
  const bool is_word = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
  return is_word || (c & 0x80) ? c : ' ';
}

// " word word ", one space between words; two spaces for a text of none.
inline void WriteWords(std::string_view text, std::string* words) {
  words->assign(1, ' ');
  for (const char c : text) {
    const char byte = WordByte(c);
    if (byte != ' ' || words->back() != ' ') words->push_back(byte);
  }
  if (words->back() != ' ' || words->size() == 1) words->push_back(' ');
}

// The code point that begins at *at, which moves behind it.
inline uint32_t NextCode(const std::string& text, size_t* at) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const uint32_t first = byte(*at);
  const int more = first < 0xC0 ? 0 : first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3;
  uint32_t code = more ? first & (0x3F >> more) : first;
  for (int i = 1; i <= more; ++i) code = code << 6 | (byte(*at + i) & 0x3F);
  *at += 1 + more;
  return code;
}

}  // namespace internal

// Counts the terms of one text after the other.
class TermCounter {
 public:
  explicit TermCounter(const TermOptions& options) : options_(options) {}

  // `hash` is that of a word, int64 of (const char*, size_t).
  template <typename Hash>
  void Count(std::string_view text, const Hash& hash, CountedTerms* counted) {
    internal::WriteWords(text, &words_);
    parts_.clear();
    is_space_.clear();
    options_.of_chars ? ReadChars() : ReadWords(hash);
    counted_ = counted;
    counted->hashes.clear();
    counted->counts.clear();
    const size_t most = parts_.size() * options_.longest;
    mask_ = 15;
    while (mask_ < 2 * most) mask_ = 2 * mask_ + 1;
    slots_.assign(mask_ + 1, -1);
    AddRuns();
  }

 private:
  template <typename Hash>
  void ReadWords(const Hash& hash) {
    for (size_t begin = 1; begin < words_.size();) {
      const size_t end = words_.find(' ', begin);
      if (end > begin) parts_.push_back(hash(&words_[begin], end - begin));
      begin = end + 1;
    }
  }

  void ReadChars() {
    for (size_t at = 0; at < words_.size();) {
      const uint32_t code = internal::NextCode(words_, &at);
      parts_.push_back((uint64_t{code} + 1) * internal::kTermFactor);
      is_space_.push_back(code == ' ');
    }
  }

  void AddRuns() {
    const int64_t size = parts_.size();
    runs_ = parts_;
    whole_.assign(size, true);
    for (int64_t length = 1; length <= options_.longest; ++length) {
      for (int64_t i = 0; i + length <= size; ++i) {
        if (length > 1) {
          runs_[i] = runs_[i] * internal::kTermFactor + parts_[i + length - 1];
        }
        // A space is at the ends alone.
        if (length > 2 && options_.of_chars && is_space_[i + length - 2]) {
          whole_[i] = false;
        }
        if (length >= options_.shortest && whole_[i]) {
          Add(runs_[i] * 31 + length);
        }
      }
    }
  }

  void Add(uint64_t term) {
    for (uint64_t at = term * internal::kTermFactor >> 20;; ++at) {
      int32_t& slot = slots_[at & mask_];
      if (slot < 0) {
        slot = counted_->hashes.size();
        counted_->hashes.push_back(term);
        counted_->counts.push_back(1);
        return;
      }
      if (static_cast<uint64_t>(counted_->hashes[slot]) == term) {
        ++counted_->counts[slot];
        return;
      }
    }
  }

  const TermOptions options_;
  std::string words_;
  std::vector<uint64_t> parts_, runs_;  // Hashes.
  std::vector<uint8_t> is_space_, whole_;
  std::vector<int32_t> slots_;  // Places in counted_, by hash; -1 for none.
  uint64_t mask_ = 0;
  CountedTerms* counted_ = nullptr;
};

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_TEXT_TERMS_H_
