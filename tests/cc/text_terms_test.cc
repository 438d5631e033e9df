// Terms of texts: words, runs of them, and of characters within them.
#include "core/text_terms.h"

#include <cstdint>
#include <string>
#include <vector>

#include "check.h"
#include "core/philox.h"

namespace tfxclass {
namespace {

int64_t FirstByte(const char* word, size_t) { return word[0]; }

CountedTerms Count(const std::string& text, const TermOptions& options) {
  CountedTerms counted;
  TermCounter(options).Count(text, FirstByte, &counted);
  CHECK(counted.hashes.size() == counted.counts.size());
  return counted;
}

void WordsByHand() {
  const CountedTerms words = Count("-B.a  A\nb2;a", {false, 1, 1});
  CHECK(words.hashes == std::vector<int64_t>({'b' * 31 + 1, 'a' * 31 + 1}));
  CHECK(words.counts == std::vector<float>({2, 3}));
  CHECK(Count("a b c", {false, 1, 3}).hashes.size() == 6);
  CHECK(Count("a b a b", {false, 2, 2}).hashes.size() == 2);
  CHECK(Count("", {false, 1, 64}).hashes.empty());
  CHECK(Count(" .", {false, 1, 1}).hashes.empty());
}

void CharactersByHand() {
  // " a", "ab", "b ", " a" again, "ac", "c ".
  CHECK(Count("ab Ac", {true, 2, 2}).hashes.size() == 5);
  // Those, and " ab", "ab ", " ac", "ac ".
  CHECK(Count("ab ac", {true, 2, 3}).hashes.size() == 9);
  // A code point is one character.
  CHECK(Count("\xC3\xA9", {true, 3, 3}).hashes.size() == 1);
  CHECK(Count("\xF0\x9D\x90\x80\xE6\xBC\xA2", {true, 4, 4}).hashes.size() == 1);
}

void BytesOfNoText() {
  Philox random(0);
  for (int i = 0; i < 2000; ++i) {
    std::string text(random.Below(20), ' ');
    for (char& c : text) c = random.Below(256);
    text.shrink_to_fit();
    for (const bool of_chars : {false, true}) {
      const CountedTerms counted = Count(text, {of_chars, 1, 4});
      float total = 0;
      for (const float count : counted.counts) total += count;
      CHECK(total <= 4.0f * (text.size() + 2));
    }
  }
}

}  // namespace
}  // namespace tfxclass

int main() {
  tfxclass::WordsByHand();
  tfxclass::CharactersByHand();
  tfxclass::BytesOfNoText();
}
