// Lines of the extreme-classification format: numbers, rows and messages.
#include "core/xc_lines.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "check.h"
#include "core/philox.h"

namespace tfxclass {
namespace {

struct Row {
  std::vector<int64_t> labels, features;
  std::vector<float> values;
  std::string error;
};

// As the kernel does it; vectors of exactly the counted sizes, so that the
// sanitizer sees a write past them.
Row Parse(const std::string& line) {
  const XcSize size = CountRow(line);
  Row row;
  row.labels.resize(size.num_labels);
  row.features.resize(size.num_features);
  row.values.resize(size.num_features);
  row.labels.shrink_to_fit();
  row.features.shrink_to_fit();
  row.values.shrink_to_fit();
  const bool parsed = ParseRow(
      line, 100, 10,
      {row.labels.data(), row.features.data(), row.values.data()}, &row.error);
  CHECK(parsed == row.error.empty());
  return row;
}

void RowsByHand() {
  Row row = Parse("3,0 7:1 99:-2.5");
  CHECK(row.error.empty());
  CHECK(row.labels == std::vector<int64_t>({3, 0}));
  CHECK(row.features == std::vector<int64_t>({7, 99}));
  CHECK(row.values == std::vector<float>({1.0f, -2.5f}));
  row = Parse(" 5:1e-3  6:+2\t7:.5 8:4. \r");
  CHECK(row.error.empty() && row.labels.empty());
  CHECK(row.values == std::vector<float>({1e-3f, 2.0f, 0.5f, 4.0f}));
  for (const char* line : {"4", "4 ", "4\r"}) {
    row = Parse(line);
    CHECK(row.error.empty() && row.features.empty());
    CHECK(row.labels == std::vector<int64_t>({4}));
  }
  row = Parse(" ");
  CHECK(row.error.empty() && row.features.empty() && row.labels.empty());
}

void NumbersAsTheCLibrary() {
  Philox random(0);
  for (int i = 0; i < 200000; ++i) {
    char text[64];
    const double number = (random.Uniform() - 0.5) *
                          std::pow(10.0, double(random.Below(60)) - 30.0);
    const int digits = static_cast<int>(random.Below(19));
    const char* formats[] = {"%.*f", "%.*e", "%.*g"};
    std::snprintf(text, sizeof(text), formats[i % 3], digits, number);
    float value;
    CHECK(internal::ParseNumber(text, &value));
    CHECK(value == static_cast<float>(std::strtod(text, nullptr)));
  }
  for (const char* text :
       {"", "-", ".", "-.", "1e", "e1", "1.2.3", "--1", "1-", "0x10", "inf",
        "nan", " 1", "1 ", "1,5", "12345678901234567890x", "1e5e5"}) {
    float value;
    CHECK(!internal::ParseNumber(text, &value));
  }
}

void Messages() {
  const struct {
    const char *line, *message;
  } kCases[] = {
      {"", "the line is empty; a row without labels starts with a space"},
      {"\r", "the line is empty; a row without labels starts with a space"},
      {"7:1 8:1",
       "the line starts with the feature '7:1'; a row without labels starts "
       "with a space"},
      {"10 7:1", "label '10' is not in [0, 10)"},
      {"-1 7:1", "label '-1' is not in [0, 10)"},
      {"99999999999999999999 7:1",
       "label '99999999999999999999' is not in [0, 10)"},
      {"1,x 7:1", "label 'x' is not an integer"},
      {"1, 7:1", "label '' is not an integer"},
      {",1 7:1", "label '' is not an integer"},
      {"1.5 7:1", "label '1.5' is not an integer"},
      {"1 7", "feature '7' has no colon, not feature:value"},
      {"1 100:1", "feature '100' is not in [0, 100)"},
      {"1 7:1 -3:1", "feature '-3' is not in [0, 100)"},
      {"1 :1", "feature '' is not an integer"},
      {"1 x:1", "feature 'x' is not an integer"},
      {"1 7:", "value '' of feature 7 is not a finite number"},
      {"1 7:1:2", "value '1:2' of feature 7 is not a finite number"},
      {"1 7:one", "value 'one' of feature 7 is not a finite number"},
      {"1 7:nan", "value 'nan' of feature 7 is not a finite number"},
      {"1 7:1e39", "value '1e39' of feature 7 is not a finite number"},
      {"\x01\xff 7:1", "label '\\x01\\xff' is not an integer"},
  };
  for (const auto& expected : kCases) {
    const std::string error = Parse(expected.line).error;
    if (error != expected.message) std::fprintf(stderr, "%s\n", error.c_str());
    CHECK(error == expected.message);
  }
  const std::string cut = Parse(std::string(1000, 'z') + " 7:1").error;
  CHECK(cut == "label '" + std::string(40, 'z') + "...' is not an integer");
}

// Whatever the bytes are, no write is out of bounds, and what is accepted was
// counted rightly.
void AnyBytes() {
  const std::string alphabet = "0123456789,,:::  ..-+e\t\r\n\xff";
  Philox random(1);
  for (int i = 0; i < 200000; ++i) {
    std::string line(random.Below(24), ' ');
    for (char& c : line) c = alphabet[random.Below(alphabet.size())];
    const Row row = Parse(line);
    if (!row.error.empty()) continue;
    for (const int64_t id : row.labels) CHECK(id >= 0 && id < 10);
    for (const int64_t id : row.features) CHECK(id >= 0 && id < 100);
    for (const float value : row.values) CHECK(std::isfinite(value));
  }
}

}  // namespace
}  // namespace tfxclass

int main() {
  tfxclass::RowsByHand();
  tfxclass::NumbersAsTheCLibrary();
  tfxclass::Messages();
  tfxclass::AnyBytes();
}
