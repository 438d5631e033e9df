// The union of the active classes on the GPU.
//
// Waits once, for three numbers: that more labels than `num_sampled` are told
// as an error, and because their number is an output in host memory. Ids out of
// range count as padding.
#include "kernels/active_classes.cu.h"
#include "kernels/active_classes_op.h"
#include "kernels/gpu_op.h"

namespace tfxclass {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;

class GpuActiveClassesOp : public ActiveClassesOp {
 public:
  using ActiveClassesOp::ActiveClassesOp;

  void Compute(OpKernelContext* c) override {
    const Tensor &targets = c->input(0), &candidates = c->input(1);
    ActiveClassesOptions read;
    OP_REQUIRES_OK(c, Read(c, &read));
    ActiveClassesOutputs out;
    OP_REQUIRES_OK(c, Allocate(c, read.num_sampled, &out));
    OpScratch scratch(c);
    int64_t* const counts = scratch.Get<int64_t>(3);
    OP_REQUIRES(c, counts != nullptr, ToStatus(kNoScratch));
    OP_REQUIRES_OK(
        c, ToStatus(SelectActiveClasses(
               OnDevice(read, c->input(6)),
               {targets.flat<int64_t>().data(), targets.NumElements(),
                candidates.flat<int64_t>().data(),
                c->input(2).flat<float>().data(), candidates.NumElements()},
               {out.ids->flat<int64_t>().data(),
                out.log_count->flat<float>().data(),
                out.positions->flat<int64_t>().data(),
                out.target_count->flat<float>().data(), counts},
               &scratch, StreamOf(c))));
    int64_t found[3];
    OP_REQUIRES_OK(c, ReadFromDevice(c, counts, 3, found));
    OP_REQUIRES(c, found[0] <= read.num_sampled,
                TooManyTargets(read.num_sampled, found[0]));
    OP_REQUIRES(c, found[2] == read.num_sampled,
                absl::InternalError("The draws of the fill ran out"));
    out.num_targets->scalar<int64_t>()() = found[0];
    out.num_candidates->scalar<int64_t>()() = found[1];
    out.used->scalar<float>()() =
        PlacesUsed(found[1], read.num_sampled - found[0], read.candidate_share);
  }

 private:
  static GpuActiveOptions OnDevice(const ActiveClassesOptions& read,
                                   const Tensor& cumulative) {
    GpuActiveOptions options;
    options.num_classes = read.num_classes;
    options.num_sampled = read.num_sampled;
    options.candidate_share = read.candidate_share;
    options.fill = read.fill;
    if (read.fill == FillLaw::kFrequency) {
      options.cumulative = cumulative.flat<double>().data();
    }
    options.sample_overflow = read.sample_overflow;
    options.seed = read.seed;
    options.stream = read.stream;
    return options;
  }
};

TFXCLASS_REGISTER(TFXCLASS_GPU_NAME("ActiveClasses")
                      .HostMemory("seed")
                      .HostMemory("num_sampled")
                      .HostMemory("candidate_share")
                      .HostMemory("num_targets")
                      .HostMemory("num_candidates")
                      .HostMemory("places_used"),
                  GpuActiveClassesOp);

}  // namespace
}  // namespace tfxclass
