// LSH tables on the GPU: built by the host, queried on the device.
//
// A query waits twice, for the targets (how many are distinct) and for how many
// candidates there are. Queries that are not finite find whatever they find.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/philox.h"
#include "kernels/gpu_index.h"
#include "kernels/hash_codes_gpu.h"
#include "kernels/lsh_op.h"
#include "kernels/lsh_query.cu.h"

namespace tfxclass {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::core::RefCountPtr;

class LshOnDevice {
 public:
  explicit LshOnDevice(OpKernelContext* c) : kept_(c) {}

  absl::Status Upload(OpKernelContext* c, const LshTables& tables) {
    tables_.count = tables.count;
    tables_.num_tables = tables.tables.size();
    tables_.code_bits = tables.functions->options().bits();
    tables_.range_bits = tables.range_bits();
    inner_product_ = tables.inner_product;
    const int64_t buckets = tables_.num_buckets() + 1;
    Scratch* const memory = kept_.memory();
    tables_.offsets = memory->Get<int32_t>(tables_.num_tables * buckets);
    tables_.ids = memory->Get<int32_t>(tables_.num_tables * tables.count);
    if (tables_.offsets == nullptr || tables_.ids == nullptr) {
      return ToStatus(kNoScratch);
    }
    for (int64_t t = 0; t < tables_.num_tables; ++t) {
      const LshTable& table = tables.tables[t];
      TF_RETURN_IF_ERROR(Copy(c, table.offsets, tables_.offsets + t * buckets));
      TF_RETURN_IF_ERROR(Copy(c, table.ids, tables_.ids + t * tables.count));
    }
    return ToStatus(functions_.Upload(*tables.functions, memory, StreamOf(c)));
  }

  const GpuLshTables& tables() const { return tables_; }

  // Hashes inputs 1 and 2 of a query; the codes are in scratch memory.
  absl::Status Hash(OpKernelContext* c, Scratch* scratch,
                    GpuLshQueries* queries) const {
    const Tensor& values = c->input(1);
    const int64_t samples = values.dim_size(0), each = values.dim_size(1);
    const int64_t count = samples * each;
    int32_t* const codes = scratch->Get<int32_t>(tables_.num_tables * count);
    float* const zeros = scratch->Get<float>(count);
    if (codes == nullptr || zeros == nullptr) return ToStatus(kNoScratch);
    // The coordinate that makes norms equal is 0 of a query.
    TF_RETURN_IF_ERROR(
        ToStatus(FillInDevice(zeros, 0, count * sizeof(float), StreamOf(c))));
    const HashedVectors vectors = {values.flat<float>().data(),
                                   inner_product_ ? zeros : nullptr, count,
                                   values.dim_size(2)};
    *queries = {codes, c->input(2).flat<bool>().data(), samples, each};
    return ToStatus(functions_.Codes(vectors, codes, StreamOf(c)));
  }

 private:
  static absl::Status Copy(OpKernelContext* c,
                           const std::vector<int32_t>& values, int32_t* to) {
    return ToStatus(CopyToDevice(to, values.data(),
                                 values.size() * sizeof(int32_t), StreamOf(c)));
  }

  KeptOnDevice kept_;
  GpuLshTables tables_;
  GpuHashFunctions functions_;
  bool inner_product_ = false;
};

class GpuLshQueryOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* c) override {
    RefCountPtr<IndexResource<LshIndexer>> resource;
    OP_REQUIRES_OK(c, LookupIndex(c, &resource));
    OP_REQUIRES_OK(c, CheckLshQueries(c));
    LshLimits limits;
    OP_REQUIRES_OK(c, limits.Read(c));
    const auto tables = resource->index.ready();
    OP_REQUIRES_OK(c, tables == nullptr
                          ? ReturnNone(c)
                          : Query(c, resource.get(), limits, tables));
  }

 private:
  static absl::Status Query(OpKernelContext* c,
                            IndexResource<LshIndexer>* resource,
                            const LshLimits& limits,
                            const std::shared_ptr<const LshTables>& tables) {
    TF_RETURN_IF_ERROR(CheckFits(*tables, c->input(1)));
    std::shared_ptr<LshOnDevice> on_device;
    TF_RETURN_IF_ERROR(CopyOfIndex(c, resource, tables, &on_device));
    OpScratch scratch(c);
    GpuLshQueries queries;
    TF_RETURN_IF_ERROR(on_device->Hash(c, &scratch, &queries));
    int64_t room;
    TF_RETURN_IF_ERROR(RoomBeside(c, limits, &room));
    const std::vector<int64_t> order = Order(limits, tables->tables.size());
    int64_t* const device_order = scratch.Get<int64_t>(order.size());
    int32_t* const first = scratch.Get<int32_t>(tables->count);
    GpuLshFound* const device_found = scratch.Get<GpuLshFound>(1);
    if (device_order == nullptr || first == nullptr ||
        device_found == nullptr) {
      return ToStatus(kNoScratch);
    }
    const GpuStream stream = StreamOf(c);
    TF_RETURN_IF_ERROR(ToStatus(CopyToDevice(
        device_order, order.data(), order.size() * sizeof(int64_t), stream)));
    const Tensor& targets = c->input(3);
    TF_RETURN_IF_ERROR(ToStatus(
        FindLshCandidates(on_device->tables(), queries, device_order,
                          targets.flat<int64_t>().data(), targets.NumElements(),
                          room, first, device_found, &scratch, stream)));
    GpuLshFound found;
    TF_RETURN_IF_ERROR(ReadFromDevice(c, device_found, 1, &found));
    const float last =
        found.added > 0
            ? static_cast<float>(found.num_taken - found.before) / found.added
            : 1.0f;
    TF_RETURN_IF_ERROR(
        Return(c, {order.begin(), order.begin() + found.num_probed}, last,
               tables->inner_product ? std::sqrt(tables->greatest) : 0.0f));
    Tensor* candidates;
    TF_RETURN_IF_ERROR(AllocateOutput(c, 0, {found.num_taken}, &candidates));
    return ToStatus(TakeLshCandidates(
        first, tables->count, found, limits.seed ^ limits.stream,
        candidates->flat<int64_t>().data(), &scratch, stream));
  }

  // Tables in the order they are probed in.
  static std::vector<int64_t> Order(const LshLimits& limits,
                                    int64_t num_tables) {
    Philox random(limits.seed, limits.stream);
    std::vector<int64_t> order(num_tables);
    std::iota(order.begin(), order.end(), 0);
    for (int64_t i = 0; i < num_tables; ++i) {
      std::swap(order[i], order[i + random.Below(num_tables - i)]);
    }
    return order;
  }

  static absl::Status RoomBeside(OpKernelContext* c, const LshLimits& limits,
                                 int64_t* room) {
    const Tensor& targets = c->input(3);
    std::vector<int64_t> on_host(targets.NumElements());
    TF_RETURN_IF_ERROR(ReadFromDevice(c, targets.flat<int64_t>().data(),
                                      targets.NumElements(), on_host.data()));
    *room = limits.Room(on_host.data(), on_host.size());
    return absl::OkStatus();
  }

  static absl::Status ReturnNone(OpKernelContext* c) {
    Tensor* candidates;
    TF_RETURN_IF_ERROR(AllocateOutput(c, 0, {0}, &candidates));
    return Return(c, {}, 1.0f, 0.0f);
  }

  // The outputs in host memory.
  static absl::Status Return(OpKernelContext* c,
                             const std::vector<int64_t>& probed,
                             float last_fraction, float norm) {
    Tensor *tables, *fraction, *of_rows;
    const int64_t num_probed = probed.size();
    TF_RETURN_IF_ERROR(AllocateOutput(c, 1, {num_probed}, &tables));
    TF_RETURN_IF_ERROR(AllocateOutput(c, 2, {}, &fraction));
    TF_RETURN_IF_ERROR(AllocateOutput(c, 3, {}, &of_rows));
    std::copy(probed.begin(), probed.end(), tables->flat<int64_t>().data());
    fraction->scalar<float>()() = last_fraction;
    of_rows->scalar<float>()() = norm;
    return absl::OkStatus();
  }
};

class GpuLshMembersOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* c) override {
    RefCountPtr<IndexResource<LshIndexer>> resource;
    OP_REQUIRES_OK(c, LookupIndex(c, &resource));
    OP_REQUIRES_OK(c, CheckLshQueries(c));
    const Tensor &probed = c->input(3), &ids = c->input(4);
    OP_REQUIRES_OK(c, CheckRank("ids", ids, 1));
    const int64_t samples = c->input(1).dim_size(0);
    Tensor* mask;
    OP_REQUIRES_OK(c,
                   AllocateOutput(c, 0, {samples, ids.NumElements()}, &mask));
    bool* const out = mask->flat<bool>().data();
    const auto tables = resource->index.ready();
    if (tables == nullptr) {
      OP_REQUIRES_OK(
          c, ToStatus(FillInDevice(out, 0, mask->NumElements(), StreamOf(c))));
      return;
    }
    OP_REQUIRES_OK(c, CheckFits(*tables, c->input(1)));
    std::shared_ptr<LshOnDevice> on_device;
    OP_REQUIRES_OK(c, CopyOfIndex(c, resource.get(), tables, &on_device));
    OpScratch scratch(c);
    GpuLshQueries queries;
    OP_REQUIRES_OK(c, on_device->Hash(c, &scratch, &queries));
    OP_REQUIRES_OK(
        c, ToStatus(LshMembers(on_device->tables(), queries,
                               probed.flat<int64_t>().data(),
                               probed.NumElements(), ids.flat<int64_t>().data(),
                               ids.NumElements(), out, &scratch, StreamOf(c))));
  }
};

TFXCLASS_GPU_INDEX_KERNELS("Lsh", LshIndexer);
TFXCLASS_REGISTER(TFXCLASS_GPU_NAME("LshBuild")
                      .HostMemory("index")
                      .HostMemory("kernel")
                      .HostMemory("seed"),
                  LshBuildOp<GpuRowsCopy>);
TFXCLASS_REGISTER(TFXCLASS_GPU_NAME("LshAdvance")
                      .HostMemory("index")
                      .HostMemory("kernel")
                      .HostMemory("seed")
                      .HostMemory("step")
                      .HostMemory("interval")
                      .HostMemory("lag"),
                  LshAdvanceOp<GpuRowsCopy>);
TFXCLASS_REGISTER(TFXCLASS_GPU_NAME("LshQuery")
                      .HostMemory("index")
                      .HostMemory("num_sampled")
                      .HostMemory("max_candidates")
                      .HostMemory("seed")
                      .HostMemory("probed")
                      .HostMemory("last_fraction")
                      .HostMemory("norm"),
                  GpuLshQueryOp);
TFXCLASS_REGISTER(TFXCLASS_GPU_NAME("LshMembers").HostMemory("index"),
                  GpuLshMembersOp);

}  // namespace
}  // namespace tfxclass
