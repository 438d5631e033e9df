// Codes of all hash families against their definitions, row by row.
#include "core/hash_functions.h"

#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

#include "check.h"

namespace tfxclass {
namespace {

constexpr HashFamily kFamilies[] = {
    HashFamily::kSimHash, HashFamily::kSparseSimHash, HashFamily::kDwta};

HashOptions Options(HashFamily family, int64_t hashes, int64_t tables,
                    uint64_t seed, int32_t bin_size = 8) {
  HashOptions options;
  options.family = family;
  options.num_hashes = hashes;
  options.num_tables = tables;
  options.seed = seed;
  options.bin_size = bin_size;
  return options;
}

// Values in (-1, 1), a fraction `zeros` of them 0.
std::vector<float> RandomRows(int64_t count, int64_t dim, double zeros,
                              uint64_t seed) {
  Philox random(seed);
  std::vector<float> rows(count * dim);
  for (float& x : rows) {
    x = random.Uniform() < zeros ? 0 : random.Uniform() * 2 - 1;
  }
  return rows;
}

LaneRows Lanes32(const std::vector<float>& rows, int64_t dim) {
  LaneRows lanes;
  lanes.Resize(rows.size() / dim, dim);
  for (int64_t i = 0; i < lanes.count; ++i) lanes.Set(i, &rows[i * dim], dim);
  return lanes;
}

// [tables, count].
std::vector<uint32_t> AllCodes(const HashFunctions& functions,
                               const LaneRows& rows) {
  const int64_t tables = functions.options().num_tables;
  const int64_t stride = rows.blocks() * kBlockRows;
  std::vector<uint32_t> padded(tables * stride), codes;
  for (int64_t b = 0; b < rows.blocks(); ++b) {
    functions.Codes(rows.block(b), 0, tables, &padded[b * kBlockRows], stride);
  }
  for (int64_t t = 0; t < tables; ++t) {
    codes.insert(codes.end(), padded.begin() + t * stride,
                 padded.begin() + t * stride + rows.count);
  }
  return codes;
}

double DenseProduct(const HashFunctions& functions, const float* row,
                    int64_t p) {
  double product = 0;
  for (int64_t d = 0; d < functions.dim(); ++d) {
    product +=
        static_cast<double>(functions.planes()[p * functions.dim() + d]) *
        row[d];
  }
  return product;
}

double SparseProduct(const HashFunctions& functions, const float* row,
                     int64_t p) {
  const SparsePlanes& planes = functions.sparse_planes();
  const int64_t size = SparsePlaneSize(functions.dim());
  double product = 0;
  for (int64_t i = 0; i < size; ++i) {
    const double x = row[planes.coordinates[p * size + i]];
    product += i < planes.num_positive[p] ? x : -x;
  }
  return product;
}

void SimHashIsTheSignOfAProduct() {
  for (const HashFamily family :
       {HashFamily::kSimHash, HashFamily::kSparseSimHash}) {
    for (const int64_t dim : {1, 2, 3, 17, 64}) {
      for (const int64_t hashes : {1, 4, 9}) {
        const HashFunctions functions(Options(family, hashes, 5, dim), dim);
        auto rows = RandomRows(45, dim, 0, hashes);
        std::fill_n(rows.begin() + 3 * dim, dim, 0.0f);  // a zero row
        const auto codes = AllCodes(functions, Lanes32(rows, dim));
        for (int64_t i = 0; i < 45; ++i) {
          for (int64_t p = 0; p < 5 * hashes; ++p) {
            const double product =
                family == HashFamily::kSimHash
                    ? DenseProduct(functions, &rows[i * dim], p)
                    : SparseProduct(functions, &rows[i * dim], p);
            const uint32_t code = codes[p / hashes * 45 + i];
            const bool bit = code >> (hashes - 1 - p % hashes) & 1;
            CHECK(code < 1u << hashes);
            // Rounding may turn the sign of what is nearly 0.
            if (i == 3) CHECK(!bit);
            if (std::abs(product) > 1e-5) CHECK(bit == (product > 0));
          }
        }
      }
    }
  }
}

// The value of one bin by its definition; -1 if it is empty.
int PlainSlot(const DwtaBins& bins, const float* row, int64_t bin) {
  int best = -1;
  for (int64_t s = 0; s < bins.bin_size(); ++s) {
    const auto value = [&](int64_t slot) {
      return row[bins.coordinates()[bin * bins.bin_size() + slot]];
    };
    if (value(s) == 0) continue;
    if (best < 0 || value(s) > value(best)) best = s;
  }
  return best;
}

void DwtaIsTheGreatestOfABin() {
  for (const double zeros : {0.0, 0.5, 0.95}) {
    for (const int64_t dim : {1, 5, 8, 19, 64}) {
      const int64_t hashes = 3, tables = 7, count = 70;
      const HashFunctions functions(
          Options(HashFamily::kDwta, hashes, tables, 11), dim);
      const DwtaBins& bins = functions.bins();
      auto rows = RandomRows(count, dim, zeros, 5);
      std::fill_n(rows.begin() + 2 * dim, dim, 0.0f);
      std::fill_n(rows.begin() + 3 * dim, dim, 0.5f);
      const auto codes = AllCodes(functions, Lanes32(rows, dim));
      for (int64_t i = 0; i < count; ++i) {
        for (int64_t f = 0; f < hashes * tables; ++f) {
          const auto slot_of = [&](int64_t bin) {
            return PlainSlot(bins, &rows[i * dim], bin);
          };
          int slot = slot_of(f);
          if (i == 2) CHECK(slot < 0);
          if (i == 3) CHECK(slot == 0);
          if (zeros == 0 && i != 2) CHECK(slot >= 0);  // plain WTA
          if (slot < 0) slot = bins.Borrow(f, slot_of);
          const uint32_t code = codes[f / hashes * count + i];
          CHECK(static_cast<int>(code >> 3 * (hashes - 1 - f % hashes) & 7) ==
                slot);
        }
      }
    }
  }
}

void BinsOfAPermutationAreDisjoint() {
  const int64_t dim = 21;
  const DwtaBins bins = DwtaBins::Draw(10, dim, 5, 3, SerialFor);
  CHECK(bins.count() == 10 && bins.bin_size() == 5);
  for (int64_t first = 0; first < 10; first += 4) {
    std::set<int32_t> seen;
    const int64_t last = std::min<int64_t>(first + 4, 10);
    for (int64_t i = first * 5; i < last * 5; ++i) {
      CHECK(bins.coordinates()[i] >= 0 && bins.coordinates()[i] < dim);
      CHECK(seen.insert(bins.coordinates()[i]).second);
    }
  }
  const HashFunctions narrow(Options(HashFamily::kDwta, 2, 2, 1), 3);
  CHECK(narrow.bins().bin_size() == 3);  // no more than there are
}

// A bin that is empty takes the value of one that is not.
void BorrowedValuesComeFromOtherBins() {
  const int64_t dim = 64;
  const HashFunctions functions(Options(HashFamily::kDwta, 1, 40, 9), dim);
  std::vector<float> row(dim, 0.0f);
  row[13] = -2.0f;
  const auto codes = AllCodes(functions, Lanes32(row, dim));
  std::set<int> given;
  for (int64_t bin = 0; bin < 40; ++bin) {
    const int slot = PlainSlot(functions.bins(), row.data(), bin);
    if (slot >= 0) given.insert(slot);
  }
  CHECK(!given.empty());
  for (const uint32_t code : codes) CHECK(given.count(code) == 1);
}

void CodesDependOnTheRowAlone() {
  const int64_t dim = 13, count = 33;
  for (const HashFamily family : kFamilies) {
    const HashFunctions functions(Options(family, 3, 10, 1), dim);
    const auto rows = RandomRows(count, dim, 0.3, 8);
    const LaneRows lanes = Lanes32(rows, dim);
    const auto codes = AllCodes(functions, lanes);
    for (const int64_t i : {0, 31, 32}) {  // alone in a block
      const std::vector<float> row(rows.begin() + i * dim,
                                   rows.begin() + (i + 1) * dim);
      const auto alone = AllCodes(functions, Lanes32(row, dim));
      for (int64_t t = 0; t < 10; ++t) CHECK(alone[t] == codes[t * count + i]);
    }
    for (const int64_t first : {1, 4, 9}) {  // some tables only
      uint32_t some[kBlockRows];
      functions.Codes(lanes.block(0), first, 1, some, 0);
      for (int64_t i = 0; i < kBlockRows; ++i) {
        CHECK(some[i] == codes[first * count + i]);
      }
    }
  }
}

void BitsAreThoseOfTheBin() {
  const int expected[] = {0, 0, 1, 2, 2, 3, 3, 3, 3, 4};
  for (int size = 1; size < 10; ++size) CHECK(CeilLog2(size) == expected[size]);
  CHECK(Options(HashFamily::kDwta, 6, 1, 0, 8).bits() == 18);
  CHECK(Options(HashFamily::kSimHash, 9, 1, 0, 8).bits() == 9);
}

void BytesRoundTrip() {
  for (const HashFamily family : kFamilies) {
    const HashFunctions functions(Options(family, 3, 4, 6), 10);
    ByteWriter out;
    functions.Write(&out);
    const std::string bytes = out.Take();
    HashFunctions read;
    ByteReader in(bytes.data(), bytes.size());
    CHECK(read.Read(&in) && in.left() == 0);
    const LaneRows rows = Lanes32(RandomRows(20, 10, 0.5, 1), 10);
    CHECK(AllCodes(read, rows) == AllCodes(functions, rows));
  }
}

std::string BytesOf(const HashFunctions& functions) {
  ByteWriter out;
  functions.Write(&out);
  return out.Take();
}

void DrawnTheSameInThreads() {
  const ParallelFor in_pieces = [](int64_t total, int64_t, const RangeBody& f) {
    for (int64_t i = total; i-- > 0;) f(i, i + 1);
  };
  for (const HashFamily family : kFamilies) {
    const HashOptions options = Options(family, 3, 7, 6);
    CHECK(BytesOf(HashFunctions(options, 10)) ==
          BytesOf(HashFunctions(options, 10, in_pieces)));
  }
}

// Votes for a class of more tables do not fit their 16 bits.
void MoreTablesThanVotesAreRefused() {
  for (const int64_t num_tables : {kMostTables, kMostTables + 1}) {
    const HashOptions options = Options(HashFamily::kDwta, 1, num_tables, 6);
    const std::string bytes = BytesOf(HashFunctions(options, 1));
    HashFunctions read;
    ByteReader in(bytes.data(), bytes.size());
    CHECK(read.Read(&in) == (num_tables == kMostTables));
  }
}

void WhatIsDrawnIsCounted() {
  HashOptions options = Options(HashFamily::kSimHash, 3, 7, 0);
  CHECK(options.drawn(100) == 2100);
  CHECK(options.drawn(INT64_MAX / 4) == INT64_MAX);
  options = Options(HashFamily::kDwta, 3, 7, 0, 8);
  CHECK(options.drawn(100) == 168 && options.drawn(5) == 105);
}

}  // namespace
}  // namespace tfxclass

int main() {
  tfxclass::SimHashIsTheSignOfAProduct();
  tfxclass::DwtaIsTheGreatestOfABin();
  tfxclass::BinsOfAPermutationAreDisjoint();
  tfxclass::BorrowedValuesComeFromOtherBins();
  tfxclass::CodesDependOnTheRowAlone();
  tfxclass::BitsAreThoseOfTheBin();
  tfxclass::BytesRoundTrip();
  tfxclass::DrawnTheSameInThreads();
  tfxclass::MoreTablesThanVotesAreRefused();
  tfxclass::WhatIsDrawnIsCounted();
}
