// The union of the active classes on the GPU.
//
// Waits once, for three numbers: the number of labels is an output in host
// memory, and where they are more than `num_sampled` the classes are chosen
// again, with room for all labels. Ids out of range count as padding.
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
    ActiveClassesOptions read;
    OP_REQUIRES_OK(c, Read(c, &read));
    ActiveClassesOutputs out;
    OP_REQUIRES_OK(c, Allocate(c, &out));
    int64_t found[3];
    Tensor ids, log_count;
    OP_REQUIRES_OK(c, Select(c, read, out, &ids, &log_count, found));
    if (found[0] > read.num_sampled) {
      read.num_sampled = found[0];
      OP_REQUIRES_OK(c, Select(c, read, out, &ids, &log_count, found));
    }
    // Once: TensorFlow ends the process where an output is set again.
    c->set_output(0, ids);
    c->set_output(1, log_count);
    OP_REQUIRES(c, found[2] == read.num_sampled,
                absl::InternalError("The draws of the fill ran out"));
    out.num_targets->scalar<int64_t>()() = found[0];
    out.num_candidates->scalar<int64_t>()() = found[1];
    out.used->scalar<float>()() =
        PlacesUsed(found[1], read.num_sampled - found[0], read.candidate_share);
  }

 private:
  // Makes outputs 0 and 1; sets `found` to the numbers of GpuActiveOutputs.
  static absl::Status Select(OpKernelContext* c,
                             const ActiveClassesOptions& read,
                             const ActiveClassesOutputs& out, Tensor* ids,
                             Tensor* log_count, int64_t* found) {
    const Tensor &targets = c->input(0), &candidates = c->input(1);
    const tensorflow::TensorShape shape({read.num_sampled});
    TF_RETURN_IF_ERROR(c->allocate_temp(tensorflow::DT_INT64, shape, ids));
    TF_RETURN_IF_ERROR(
        c->allocate_temp(tensorflow::DT_FLOAT, shape, log_count));
    OpScratch scratch(c);
    int64_t* const counts = scratch.Get<int64_t>(3);
    if (counts == nullptr) return ToStatus(kNoScratch);
    TF_RETURN_IF_ERROR(ToStatus(SelectActiveClasses(
        OnDevice(read, c->input(6)),
        {targets.flat<int64_t>().data(), targets.NumElements(),
         candidates.flat<int64_t>().data(), c->input(2).flat<float>().data(),
         candidates.NumElements()},
        {ids->flat<int64_t>().data(), log_count->flat<float>().data(),
         out.positions->flat<int64_t>().data(),
         out.target_count->flat<float>().data(), counts},
        &scratch, StreamOf(c))));
    return ReadFromDevice(c, counts, 3, found);
  }

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
