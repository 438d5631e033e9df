// Labels of recent rows, by hashes of the rows' features.
//
// A table has buckets of `places` labels, -1 is none. A row's bucket is a code
// of `bits` bits, each the sign of a product with a random vector less a
// running mean of such products: so buckets fill evenly wherever features lie.
// Rows that are alike often have a bucket in common, and each new label there
// takes the place of an old one (Petrovic, Osborne and Lavrenko, Streaming
// First Story Detection with Application to Twitter, NAACL 2010). Nothing is
// ever built, and what is found is as new as the rows' last visits.
//
// What a caller wrote into the buckets may be anything: it is only handed out.
#ifndef TFXCLASS_CORE_RECENT_LABELS_H_
#define TFXCLASS_CORE_RECENT_LABELS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tfxclass {

// What a step counts in the running means, at least.
constexpr double kLeastRate = 0.01;

struct RecentLabels {
  int32_t* ids = nullptr;  // [tables, 1 << bits, places]
  int64_t tables = 0, bits = 0, places = 0;
  float* centres = nullptr;  // [tables * bits]

  int64_t Columns() const { return tables * bits; }

  int32_t* Bucket(int64_t table, uint32_t code) const {
    return ids + ((table << bits) + code) * places;
  }
};

// Moves the centres towards the means of products [n, columns]; to them at
// step 0.
inline void MoveCentres(const RecentLabels& recent, const float* products,
                        int64_t n, int64_t step) {
  if (n == 0) return;
  const int64_t columns = recent.Columns();
  std::vector<double> sums(columns);
  for (int64_t r = 0; r < n; ++r) {
    for (int64_t c = 0; c < columns; ++c) sums[c] += products[r * columns + c];
  }
  const double age = std::max<double>(step, 0) + 1;
  const double rate = std::max(1 / age, kLeastRate);
  for (int64_t c = 0; c < columns; ++c) {
    const double centre = recent.centres[c];
    recent.centres[c] = centre + rate * (sums[c] / n - centre);
  }
}

// codes [n, tables]; bit b of a table is that of its product b.
inline std::vector<uint32_t> CodesOf(const RecentLabels& recent,
                                     const float* products, int64_t n) {
  std::vector<uint32_t> codes(n * recent.tables);
  uint32_t* code = codes.data();
  for (int64_t r = 0; r < n; ++r) {
    const float* centre = recent.centres;
    for (int64_t t = 0; t < recent.tables; ++t, ++code) {
      uint32_t bits = 0;
      for (int64_t b = 0; b < recent.bits; ++b) {
        bits |= static_cast<uint32_t>(*products++ > *centre++) << b;
      }
      *code = bits;
    }
  }
  return codes;
}

// found: what the buckets of each row hold, the first tables * places numbers
// of each row of so many columns.
inline void ReadRecent(const RecentLabels& recent,
                       const std::vector<uint32_t>& codes, int64_t n,
                       int64_t* found, int64_t columns) {
  // Buckets are anywhere in memory: all are asked for before one is used.
  for (size_t i = 0; i < codes.size(); ++i) {
    __builtin_prefetch(recent.Bucket(i % recent.tables, codes[i]));
  }
  const uint32_t* code = codes.data();
  for (int64_t r = 0; r < n; ++r) {
    int64_t* to = found + r * columns;
    for (int64_t t = 0; t < recent.tables; ++t, ++code) {
      const int32_t* const bucket = recent.Bucket(t, *code);
      to = std::copy(bucket, bucket + recent.places, to);
    }
  }
}

// Puts labels [n] that are not negative into the buckets of their rows, where
// they are not there.
inline void InsertRecent(const RecentLabels& recent,
                         const std::vector<uint32_t>& codes,
                         const int64_t* labels, int64_t n, int64_t step) {
  const int64_t places = recent.places;
  for (size_t i = 0; i < codes.size(); ++i) {
    const int64_t row = i / recent.tables;
    const int32_t label = labels[row];
    if (label < 0) continue;
    int32_t* const bucket = recent.Bucket(i % recent.tables, codes[i]);
    if (std::find(bucket, bucket + places, label) != bucket + places) continue;
    int32_t* place = std::find(bucket, bucket + places, -1);
    if (place == bucket + places) {
      place = bucket + (static_cast<uint64_t>(step) + row) % places;
    }
    *place = label;
  }
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_RECENT_LABELS_H_
