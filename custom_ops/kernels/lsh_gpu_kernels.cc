// LSH tables on the GPU: built by the host, queried on the device.
//
// A query waits twice, for the targets (how many are distinct) and for how many
// candidates there are. Queries that are not finite find whatever they find.
#include <numeric>
#include <vector>

#include "kernels/device_writer.h"
#include "kernels/gpu_index.h"
#include "kernels/hash_codes_gpu.h"
#include "kernels/lsh_device_rows.h"
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
  explicit LshOnDevice(OpKernelContext* c) : memory_(c) {}

  absl::Status Upload(OpKernelContext* c, const LshTables& tables) {
    tables_.count = tables.count;
    tables_.num_tables = tables.tables.size();
    if (tables_.num_tables > kMostGpuTables) {
      return absl::InvalidArgumentError(
          absl::StrCat("On a GPU `num_tables` must be at most ", kMostGpuTables,
                       ". Received: ", tables_.num_tables));
    }
    tables_.code_bits = tables.functions->options().bits();
    tables_.range_bits = tables.range_bits();
    inner_product_ = tables.inner_product;
    const int64_t buckets = tables_.num_buckets() + 1;
    tables_.offsets = memory_.Get<int32_t>(tables_.num_tables * buckets);
    tables_.most_ids = tables.most_ids();
    tables_.ids = memory_.Get<int32_t>(tables_.num_tables * tables_.most_ids);
    if (tables_.offsets == nullptr || tables_.ids == nullptr) {
      return ToStatus(kNoScratch);
    }
    OpScratch page_locked(c, OpScratch::kPageLocked);
    DeviceWriter writer(&page_locked, PoolOf(c), StreamOf(c));
    for (int64_t t = 0; t < tables_.num_tables; ++t) {
      const LshTable& table = tables.tables[t];
      TF_RETURN_IF_ERROR(
          ToStatus(writer.Write(table.offsets, tables_.offsets + t * buckets)));
      TF_RETURN_IF_ERROR(ToStatus(
          writer.Write(table.ids, tables_.ids + t * tables_.most_ids)));
    }
    TF_RETURN_IF_ERROR(ToStatus(writer.Finish()));
    return ToStatus(
        functions_.Upload(*tables.functions, &memory_, StreamOf(c)));
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
  OpScratch memory_;  // which lives as long as the tables it is for
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
    int32_t* const most = scratch.Get<int32_t>(tables->count);
    GpuLshFound* const device_found = scratch.Get<GpuLshFound>(1);
    if (most == nullptr || device_found == nullptr) {
      return ToStatus(kNoScratch);
    }
    const GpuStream stream = StreamOf(c);
    const Tensor& targets = c->input(3);
    TF_RETURN_IF_ERROR(ToStatus(FindLshCandidates(
        on_device->tables(), queries, targets.flat<int64_t>().data(),
        targets.NumElements(), room, most, device_found, &scratch, stream)));
    GpuLshFound found;
    TF_RETURN_IF_ERROR(ReadFromDevice(c, device_found, 1, &found));
    TF_RETURN_IF_ERROR(
        ReturnLshFound(c, OnHost(found, *tables), NormOf(*tables)));
    Tensor* candidates;
    TF_RETURN_IF_ERROR(AllocateOutput(c, 0, {found.num_taken}, &candidates));
    return ToStatus(TakeLshCandidates(most, tables->count, found, limits.seed,
                                      candidates->flat<int64_t>().data(),
                                      &scratch, stream));
  }

  // All but the candidates.
  static LshCandidates OnHost(const GpuLshFound& found,
                              const LshTables& tables) {
    LshCandidates on_host;
    on_host.probed.resize(tables.tables.size());
    std::iota(on_host.probed.begin(), on_host.probed.end(), 0);
    on_host.least_votes = found.least_votes;
    if (found.with_least > 0) {
      on_host.last_fraction =
          static_cast<float>(found.num_taken - found.above) / found.with_least;
    }
    on_host.pool = found.pool;
    return on_host;
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
    return ReturnLshFound(c, LshCandidates(), 0.0f);
  }
};

class GpuLshMembersOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* c) override {
    RefCountPtr<IndexResource<LshIndexer>> resource;
    OP_REQUIRES_OK(c, LookupIndex(c, &resource));
    OP_REQUIRES_OK(c, CheckLshQueries(c));
    const Tensor &probed = c->input(3), &ids = c->input(5);
    int64_t least_votes;
    OP_REQUIRES_OK(c,
                   ReadInteger(c, "least_votes", 1, INT64_MAX, &least_votes));
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
        c, ToStatus(LshMembers(
               on_device->tables(), queries, probed.flat<int64_t>().data(),
               probed.NumElements(), least_votes, ids.flat<int64_t>().data(),
               ids.NumElements(), out, &scratch, StreamOf(c))));
  }
};

TFXCLASS_GPU_INDEX_KERNELS("Lsh", LshIndexer);
TFXCLASS_REGISTER(TFXCLASS_GPU_NAME("LshBuild")
                      .HostMemory("index")
                      .HostMemory("kernel")
                      .HostMemory("seed"),
                  LshBuildOp<RowsOnGpu>);
TFXCLASS_REGISTER(TFXCLASS_GPU_NAME("LshAdvance")
                      .HostMemory("index")
                      .HostMemory("kernel")
                      .HostMemory("seed")
                      .HostMemory("step")
                      .HostMemory("interval")
                      .HostMemory("lag")
                      .HostMemory("drifted"),
                  LshAdvanceOp<RowsOnGpu>);
TFXCLASS_REGISTER(TFXCLASS_GPU_NAME("LshQuery")
                      .HostMemory("index")
                      .HostMemory("num_sampled")
                      .HostMemory("max_candidates")
                      .HostMemory("seed")
                      .HostMemory("probed")
                      .HostMemory("least_votes")
                      .HostMemory("last_fraction")
                      .HostMemory("pool")
                      .HostMemory("norm"),
                  GpuLshQueryOp);
TFXCLASS_REGISTER(TFXCLASS_GPU_NAME("LshMembers")
                      .HostMemory("index")
                      .HostMemory("least_votes"),
                  GpuLshMembersOp);

}  // namespace
}  // namespace tfxclass
