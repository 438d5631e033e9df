// Lines of the extreme-classification text format: "l1,l2 f:v f:v ...".
//
// CountRow gives the size of a row and so its place among flat arrays;
// ParseRow then writes the row there, and checks it. Both read a line once and
// allocate nothing but an error message. Lines are independent: thread-safe.
#ifndef TFXCLASS_CORE_XC_LINES_H_
#define TFXCLASS_CORE_XC_LINES_H_

#include <locale.h>
#include <stdlib.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

namespace tfxclass {

struct XcSize {
  int64_t num_features = 0;
  int64_t num_labels = 0;
};

struct XcRow {
  int64_t* labels = nullptr;
  int64_t* features = nullptr;
  float* values = nullptr;
};

namespace internal {

inline bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\r'; }
inline bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// The first token of `text`, which is removed with the blanks behind it.
inline std::string_view TakeToken(std::string_view* text) {
  const auto end = std::find_if(text->begin(), text->end(), IsBlank);
  const auto next =
      std::find_if(end, text->end(), [](char c) { return !IsBlank(c); });
  const std::string_view token = text->substr(0, end - text->begin());
  text->remove_prefix(next - text->begin());
  return token;
}

// What a message shows of a line: short, and printable whatever it holds.
inline std::string Quoted(std::string_view text) {
  static const char kHex[] = "0123456789abcdef";
  constexpr size_t kMost = 40;
  std::string quoted = "'";
  for (const unsigned char c : text.substr(0, kMost)) {
    if (c >= ' ' && c < 127) {
      quoted += c;
    } else {
      quoted += {'\\', 'x', kHex[c / 16], kHex[c % 16]};
    }
  }
  return quoted + (text.size() > kMost ? "...'" : "'");
}

// An id in [0, count) that is all of `text`; says why not otherwise.
inline bool ParseId(const char* what, std::string_view text, int64_t count,
                    int64_t* id, std::string* error) {
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, *id);
  if (parsed.ptr != end || parsed.ec == std::errc::invalid_argument) {
    *error = std::string(what) + " " + Quoted(text) + " is not an integer";
    return false;
  }
  if (parsed.ec == std::errc() && *id >= 0 && *id < count) return true;
  *error = std::string(what) + " " + Quoted(text) + " is not in [0, " +
           std::to_string(count) + ")";
  return false;
}

// Any decimal number, by the C library in its "C" locale.
inline bool ParseLongNumber(std::string_view text, float* value) {
  static const locale_t locale = newlocale(LC_ALL_MASK, "C", nullptr);
  // strtod also knows hexadecimals, inf and nan, and leading blanks.
  if (text.find_first_not_of("0123456789+-.eE") != text.npos) return false;
  const std::string copy(text);
  char* end;
  *value = static_cast<float>(strtod_l(copy.c_str(), &end, locale));
  return !copy.empty() && end == copy.c_str() + copy.size();
}

// Up to 15 digits are exact in a double, and so is a power of ten up to 22:
// their quotient is the nearest double, as strtod's is.
inline bool ParseNumber(std::string_view text, float* value) {
  static const double kPowers[] = {1e0,  1e1,  1e2,  1e3, 1e4,  1e5,
                                   1e6,  1e7,  1e8,  1e9, 1e10, 1e11,
                                   1e12, 1e13, 1e14, 1e15};
  if (text.size() > 16) return ParseLongNumber(text, value);
  int64_t digits = 0;
  size_t count = 0, decimals = 0, at = !text.empty() && text[0] == '-';
  const size_t start = at;
  for (; at < text.size() && IsDigit(text[at]); ++at, ++count) {
    digits = digits * 10 + (text[at] - '0');
  }
  if (at < text.size() && text[at] == '.') {
    for (++at; at < text.size() && IsDigit(text[at]); ++at, ++decimals) {
      digits = digits * 10 + (text[at] - '0');
    }
  }
  count += decimals;
  if (at < text.size() || count == 0 || count > 15) {
    return ParseLongNumber(text, value);
  }
  const double number = static_cast<double>(digits) / kPowers[decimals];
  *value = static_cast<float>(start ? -number : number);
  return true;
}

inline bool ParseLabels(std::string_view text, int64_t num_classes,
                        int64_t* labels, std::string* error) {
  for (;;) {
    const size_t comma = std::min(text.find(','), text.size());
    if (!ParseId("label", text.substr(0, comma), num_classes, labels, error)) {
      return false;
    }
    ++labels;
    if (comma == text.size()) return true;
    text.remove_prefix(comma + 1);
  }
}

inline bool ParseFeature(std::string_view text, int64_t num_features,
                         int64_t* feature, float* value, std::string* error) {
  const size_t colon = text.find(':');
  if (colon == text.npos) {
    *error = "feature " + Quoted(text) + " has no colon, not feature:value";
    return false;
  }
  if (!ParseId("feature", text.substr(0, colon), num_features, feature,
               error)) {
    return false;
  }
  const std::string_view number = text.substr(colon + 1);
  if (ParseNumber(number, value) && std::isfinite(*value)) return true;
  *error = "value " + Quoted(number) + " of feature " +
           std::to_string(*feature) + " is not a finite number";
  return false;
}

}  // namespace internal

// Sizes of the row if it is well formed; else ParseRow fails within them.
inline XcSize CountRow(std::string_view line) {
  const std::string_view labels = internal::TakeToken(&line);
  XcSize size;
  if (!labels.empty()) {
    size.num_labels = 1 + std::count(labels.begin(), labels.end(), ',');
  }
  size.num_features = std::count(line.begin(), line.end(), ':');
  return size;
}

// Writes a row into arrays of CountRow's sizes. False, with the reason in
// *error, for a malformed one; what is in the arrays then is of no use.
inline bool ParseRow(std::string_view line, int64_t num_features,
                     int64_t num_classes, XcRow row, std::string* error) {
  if (line.empty() || line == "\r") {
    *error = "the line is empty; a row without labels starts with a space";
    return false;
  }
  const std::string_view labels = internal::TakeToken(&line);
  if (labels.find(':') != labels.npos) {
    *error = "the line starts with the feature " + internal::Quoted(labels) +
             "; a row without labels starts with a space";
    return false;
  }
  if (!labels.empty() &&
      !internal::ParseLabels(labels, num_classes, row.labels, error)) {
    return false;
  }
  while (!line.empty()) {
    const std::string_view feature = internal::TakeToken(&line);
    if (!internal::ParseFeature(feature, num_features, row.features++,
                                row.values++, error)) {
      return false;
    }
  }
  return true;
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_XC_LINES_H_
