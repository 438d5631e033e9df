// What indexes are built from, of class vectors on the device and on the host.
#include "kernels/device_rows.h"

#include <cmath>
#include <limits>
#include <memory>

#include "core/forest_indexer.h"
#include "core/lsh_indexer.h"
#include "gpu_tests/harness.h"
#include "kernels/device_writer.h"
#include "kernels/forest_device_rows.h"
#include "kernels/lsh_device_rows.h"

namespace gpu_tests {
namespace {

using tfxclass::ClassRows;
using tfxclass::DeviceRows;
using tfxclass::ForestIndexer;
using tfxclass::ForestOptions;
using tfxclass::HashFamily;
using tfxclass::LshIndexer;
using tfxclass::LshOptions;
using tfxclass::LshTables;
using tfxclass::Refreshing;
using tfxclass::SerialFor;

// Memory of the host, in place of page-locked memory.
class HostScratch : public tfxclass::Scratch {
 protected:
  void* GetBytes(size_t bytes) override {
    pieces_.emplace_back(new char[bytes + 1]);
    return pieces_.back().get();
  }

 private:
  std::vector<std::unique_ptr<char[]>> pieces_;
};

class NoScratch : public tfxclass::Scratch {
 protected:
  void* GetBytes(size_t) override { return nullptr; }
};

// The same rows on both. `values` may be changed, Send()s them.
struct Rows {
  Rows(int64_t count, int64_t dim, uint64_t seed)
      : count(count),
        dim(dim),
        values(Random(seed).Normal(count * dim)),
        buffer(values) {}

  ClassRows host() const { return {values.data(), count, dim}; }
  DeviceRows device() {
    // So few bytes that there are several copies.
    return {buffer.data(), count, dim, {&on_device, page_locked, nullptr, 700}};
  }
  void Send() {
    CopyIn(buffer.data(), values.data(), values.size() * sizeof(float));
  }

  const int64_t count, dim;
  std::vector<float> values;
  Buffer<float> buffer;
  TestScratch on_device;
  HostScratch host_scratch;
  tfxclass::Scratch* page_locked = &host_scratch;
};

// Copies of any size give all rows once, in order.
GPU_TEST(DeviceRowsAreCopied) {
  const int64_t count = 1000, width = 3;
  std::vector<float> values;
  for (int64_t i = 0; i < count * width; ++i) values.push_back(i);
  Buffer<float> buffer(values);
  for (const int64_t copy_bytes : {1, 12, 500, 12000, 100000}) {
    TestScratch on_device;
    HostScratch page_locked;
    NoScratch none;
    for (tfxclass::Scratch* host :
         {static_cast<tfxclass::Scratch*>(&none),
          static_cast<tfxclass::Scratch*>(&page_locked)}) {
      const tfxclass::RowCopier copier = {&on_device, host, nullptr,
                                          copy_bytes};
      std::vector<float> found;
      Done(copier.Copy(
          count, width * sizeof(float),
          [&](int64_t first, int64_t n, char* to) {
            return tfxclass::CopyInDevice(to, buffer.data() + first * width,
                                          n * width * sizeof(float), nullptr);
          },
          [&](int64_t first, int64_t n, const char* from) {
            Expect(static_cast<int64_t>(found.size()) == first * width,
                   "rows come in order");
            const float* const begin = reinterpret_cast<const float*>(from);
            found.insert(found.end(), begin, begin + n * width);
          }));
      ExpectEqual(found, values, "rows");
    }
  }
}

// The other way, through two pieces of page-locked memory.
GPU_TEST(DeviceRowsAreWritten) {
  const std::vector<float> values = Random(3).Normal(20000);
  const std::vector<int64_t> ids = {5, -3, 1}, empty;
  for (const int64_t piece_bytes : {1, 4, 5000, 100000}) {
    HostScratch page_locked;
    NoScratch none;
    for (const bool has_memory : {true, false}) {
      Buffer<float> on_device(values.size());
      Buffer<int64_t> ids_on_device(ids.size());
      tfxclass::Scratch* const memory =
          has_memory ? static_cast<tfxclass::Scratch*>(&page_locked) : &none;
      tfxclass::DeviceWriter writer(memory, SerialFor, nullptr, piece_bytes);
      std::vector<float> changed = values;
      Done(writer.Write(changed, on_device.data()));
      changed.assign(changed.size(), 0.0f);
      Done(writer.Write(empty, ids_on_device.data()));
      Done(writer.Write(ids, ids_on_device.data()));
      Done(writer.Finish());
      ExpectEqual(on_device.Read(), values, "floats");
      ExpectEqual(ids_on_device.Read(), ids, "ids");
    }
  }
}

void CheckDirections(Rows* rows) {
  tfxclass::ForestRows found, expected;
  Expect(TakeDirections(rows->device(), 0, SerialFor, &found), "finite");
  Expect(TakeDirections(rows->host(), 0, SerialFor, &expected), "finite");
  Expect(found.count == expected.count && found.dim == expected.dim &&
             found.padded == expected.padded && !found.sketch,
         "sizes");
  ExpectEqual(found.values, expected.values, "directions");
}

GPU_TEST(DeviceRowsDirections) {
  for (const int64_t dim : {1, 16, 37, 200}) {
    Rows rows(77, dim, dim);
    // A zero row, one that is nearly zero, and a large one.
    for (int64_t d = 0; d < dim; ++d) {
      rows.values[3 * dim + d] = 0;
      rows.values[4 * dim + d] *= 1e-41f;
      rows.values[5 * dim + d] *= 1e17f;
    }
    rows.Send();
    CheckDirections(&rows);
    NoScratch none;
    rows.page_locked = &none;
    CheckDirections(&rows);
  }
}

LshOptions Options(HashFamily family, bool inner_product) {
  LshOptions options;
  options.hash.family = family;
  options.hash.num_hashes = 4;
  options.hash.num_tables = 5;
  options.hash.seed = 11;
  options.inner_product = inner_product;
  options.bucket_size = 6;
  return options;
}

constexpr HashFamily kFamilies[] = {
    HashFamily::kSimHash, HashFamily::kSparseSimHash, HashFamily::kDwta};

// Of a sum of `dim` products, relative to the sum of their sizes: each of the
// two is as near to the exact one.
double RoundingOf(int64_t dim) { return 2 * (dim + 2) * std::ldexp(1.0, -24); }

// The extra coordinate of a row by doubles, and how far rounding takes it.
struct Extra {
  double value = 0, error = 0;
};

Extra ExtraOf(const LshTables& tables, const float* row) {
  if (!tables.inner_product) return {};
  double squared = 0;
  for (int64_t d = 0; d < tables.dim; ++d) squared += 1.0 * row[d] * row[d];
  const double greatest = tables.greatest;
  const double off = 2 * RoundingOf(tables.dim) * greatest;
  const double value = std::sqrt(std::max(greatest - squared, 0.0));
  const double most = std::sqrt(std::max(greatest - squared, 0.0) + off);
  const double least = std::sqrt(std::max(greatest - squared - off, 0.0));
  return {value, std::max(most - value, value - least)};
}

// Whether rounding alone may turn the sign of a product of the row with a plane
// of the table.
bool IsNearTie(const LshTables& tables, const float* row, int64_t table) {
  const tfxclass::HashFunctions& functions = *tables.functions;
  const int64_t hashes = functions.options().num_hashes;
  const int64_t width = functions.dim();
  const Extra extra = ExtraOf(tables, row);
  std::vector<float> sparse;
  const float* planes = functions.planes().data();
  if (functions.options().family == HashFamily::kSparseSimHash) {
    sparse.assign(functions.options().count() * width, 0.0f);
    const auto& drawn = functions.sparse_planes();
    const int64_t size = tfxclass::SparsePlaneSize(width);
    for (size_t i = 0; i < drawn.coordinates.size(); ++i) {
      const int64_t plane = i / size;
      const bool is_plus =
          static_cast<int64_t>(i) % size < drawn.num_positive[plane];
      sparse[plane * width + drawn.coordinates[i]] = is_plus ? 1.0f : -1.0f;
    }
    planes = sparse.data();
  }
  for (int64_t h = 0; h < hashes; ++h) {
    const float* const plane = planes + (table * hashes + h) * width;
    double sum = 0, sizes = 0, off = 0;
    for (int64_t d = 0; d < width; ++d) {
      const double product = plane[d] * (d < tables.dim ? row[d] : extra.value);
      sum += product;
      sizes += std::abs(product);
      if (d == tables.dim) off = std::abs(plane[d]) * extra.error;
    }
    if (std::abs(sum) <= RoundingOf(width) * sizes + off) return true;
  }
  return false;
}

// Codes of DWTA are equal. Those of signs are, but for products that are 0 as
// far as rounding tells.
void CheckCodes(Rows* rows, HashFamily family, bool inner_product,
                const std::vector<int64_t>* ids) {
  const LshOptions options = Options(family, inner_product);
  LshTables tables;
  tables.count = rows->count;
  tables.dim = rows->dim;
  tables.inner_product = inner_product;
  tables.functions = std::make_shared<tfxclass::HashFunctions>(
      options.hash, rows->dim + inner_product);
  float of_device;
  Expect(GreatestNorm(rows->device(), ids, SerialFor, &of_device), "finite");
  Expect(GreatestNorm(rows->host(), ids, SerialFor, &tables.greatest),
         "finite");
  Expect(std::abs(of_device - tables.greatest) <=
             RoundingOf(rows->dim) * tables.greatest,
         "greatest norm");
  std::vector<int64_t> all;
  for (int64_t i = 0; i < rows->count; ++i) all.push_back(i);
  const std::vector<int64_t>& hashed = ids ? *ids : all;
  std::vector<uint32_t> found, expected;
  if (ids != nullptr) {
    Expect(HashTouched(rows->device(), *ids, SerialFor, &tables, &found), "");
  } else {
    Expect(HashAll(rows->device(), SerialFor, &tables, &found), "");
  }
  Expect(HashTouched(rows->host(), hashed, SerialFor, &tables, &expected), "");
  const int64_t count = hashed.size(), num_tables = options.hash.num_tables;
  Expect(static_cast<int64_t>(found.size()) == num_tables * count, "size");
  const int64_t stride = expected.size() / num_tables;
  for (int64_t t = 0; t < num_tables; ++t) {
    for (int64_t i = 0; i < count; ++i) {
      if (found[t * count + i] == expected[t * stride + i]) continue;
      const float* const row = rows->values.data() + hashed[i] * rows->dim;
      Expect(family != HashFamily::kDwta && IsNearTie(tables, row, t),
             "the code of a row that is near no tie");
    }
  }
}

GPU_TEST(DeviceRowsCodes) {
  for (const HashFamily family : kFamilies) {
    for (const int64_t dim : {1, 33, 70}) {
      Rows rows(300, dim, dim);
      std::vector<int64_t> some, none;
      for (int64_t i = 0; i < 300; i += 1 + i % 7) some.push_back(i);
      CheckCodes(&rows, family, false, nullptr);
      CheckCodes(&rows, family, false, &some);
      CheckCodes(&rows, family, false, &none);
      // The extra coordinate may round another way, and DWTA compares it.
      if (family == HashFamily::kDwta) continue;
      CheckCodes(&rows, family, true, nullptr);
      CheckCodes(&rows, family, true, &some);
    }
  }
}

// Rows of these indexes are near no tie.
template <class Indexer>
std::string Ready(Refreshing<Indexer>* index) {
  return Indexer::Write(*index->ready());
}

// The first index, one of few rows that changed, and one of many.
void CheckRefreshes(HashFamily family, bool has_page_locked) {
  Rows rows(200, 12, 5);
  NoScratch none;
  if (!has_page_locked) rows.page_locked = &none;
  const LshOptions options = Options(family, false);
  Refreshing<LshIndexer> on_host, on_device;
  const std::vector<int64_t> few = {3, 64, 199};
  std::vector<int64_t> many;
  for (int64_t i = 0; i < 200; i += 2) many.push_back(i);
  int64_t step = 0;
  for (const auto& changed : {std::vector<int64_t>(), few, many, few}) {
    for (const int64_t id : changed) {
      for (int64_t d = 0; d < rows.dim; ++d) {
        rows.values[id * rows.dim + d] *= d % 2 ? -2.0f : 1.5f;
      }
    }
    rows.Send();
    on_host.Mark(changed.data(), changed.size());
    on_device.Mark(changed.data(), changed.size());
    for (int64_t i = 0; i < 3; ++i, ++step) {
      const tfxclass::RefreshSteps steps = {step, 3, 2};
      Expect(on_host.Advance(steps, rows.host(), options, SerialFor), "host");
      Expect(on_device.Advance(steps, rows.device(), options, SerialFor),
             "device");
    }
    Expect(Ready(&on_device) == Ready(&on_host), "tables");
  }
}

GPU_TEST(DeviceRowsRefreshTables) {
  for (const HashFamily family : kFamilies) {
    CheckRefreshes(family, true);
    CheckRefreshes(family, false);
  }
}

// Few rows are copied, and hashed, where few changed.
GPU_TEST(DeviceRowsOfMarksAlone) {
  Rows rows(200, 12, 5);
  const LshOptions options = Options(HashFamily::kDwta, false);
  LshIndexer::Source source;
  tfxclass::TouchedRows touched;
  const auto latest = std::make_shared<LshTables>([&] {
    Refreshing<LshIndexer> index;
    index.Build(rows.device(), options, SerialFor);
    return *index.ready();
  }());
  const std::vector<int64_t> ids = {3, 64};
  touched.Mark(ids.data(), ids.size());
  // Rows that were not marked are not read.
  for (int64_t i = 0; i < rows.dim; ++i) {
    rows.values[9 * rows.dim + i] = std::numeric_limits<float>::quiet_NaN();
  }
  rows.Send();
  Expect(LshIndexer::Take(rows.device(), options, latest, touched, SerialFor,
                          &source),
         "marked rows are finite");
  Expect(source.ids == ids, "ids");
  Expect(source.codes.size() == 2 * latest->tables.size(), "codes");
}

GPU_TEST(DeviceRowsBuildForest) {
  Rows rows(300, 20, 6);
  ForestOptions options;
  options.num_trees = 3;
  options.leaf_size = 10;
  options.seed = 4;
  Refreshing<ForestIndexer> on_host, on_device;
  Expect(on_host.Build(rows.host(), options, SerialFor), "host");
  Expect(on_device.Build(rows.device(), options, SerialFor), "device");
  Expect(Ready(&on_device) == Ready(&on_host), "forests");
}

// Rows that are not finite start nothing; the index stays.
template <class Indexer>
void CheckRefused(const typename Indexer::Options& options, float bad) {
  Rows rows(50, 9, 7);
  Refreshing<Indexer> index;
  Expect(index.Build(rows.device(), options, SerialFor), "built");
  const auto ready = index.ready();
  rows.values[17 * 9 + 8] = bad;
  rows.Send();
  const int64_t marked = 17;
  index.Mark(&marked, 1);
  const DeviceRows read = rows.device();
  Expect(index.Advance({5, 1, 1}, read, options, SerialFor), "goes on");
  Expect(read.status == nullptr && index.ready() == ready, "as it was");
  Expect(!Refreshing<Indexer>().Build(read, options, SerialFor), "refused");
}

// Without memory of the device there is a message, and the index stays.
template <class Indexer>
void CheckNoMemory(const typename Indexer::Options& options) {
  Rows rows(50, 9, 7);
  Refreshing<Indexer> index;
  Expect(index.Build(rows.device(), options, SerialFor), "built");
  const auto ready = index.ready();
  NoScratch none;
  DeviceRows read = rows.device();
  read.copier.on_device = &none;
  index.Advance({5, 1, 1}, read, options, SerialFor);
  Expect(read.status == tfxclass::kNoScratch, "why");
  Expect(index.ready() == ready && index.Save().pending.empty(), "as it was");
}

GPU_TEST(DeviceRowsThatCannotBeRead) {
  const LshOptions tables = Options(HashFamily::kSimHash, true);
  const ForestOptions forest;
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity(), 1e30f}) {
    CheckRefused<LshIndexer>(tables, bad);
    CheckRefused<ForestIndexer>(forest, bad);
  }
  CheckNoMemory<LshIndexer>(tables);
  CheckNoMemory<ForestIndexer>(forest);
}

}  // namespace
}  // namespace gpu_tests
