// CPU kernels of the streaming passes over blocks of logits.
#include <algorithm>
#include <type_traits>
#include <vector>

#include "core/bf16.h"
#include "core/softmax_block.h"
#include "core/tile_dispatch.h"
#include "kernels/softmax_block_checks.h"

namespace tfxclass {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

class SoftmaxBlockStatsOp : public OpKernel {
 public:
  explicit SoftmaxBlockStatsOp(OpKernelConstruction* c) : OpKernel(c) {}

  void Compute(OpKernelContext* c) override {
    const Tensor& logits = c->input(0);
    const Tensor& targets = c->input(1);
    const Tensor& delta = c->input(2);
    OP_REQUIRES_OK(c, CheckBlockInputs(c, "running_max", "running_sum"));
    const int64_t batch = logits.dim_size(0), block = logits.dim_size(1);
    const int64_t width = targets.dim_size(1);
    Tensor *max, *sum;
    OP_REQUIRES_OK(c, AllocateOutput(c, 0, {batch}, &max));
    OP_REQUIRES_OK(c, AllocateOutput(c, 1, {batch}, &sum));
    const int64_t offset = IndexOf(c->input(3));
    const float* x = logits.flat<float>().data();
    const int64_t* t = targets.flat<int64_t>().data();
    const float* d = delta.flat<float>().data();
    float* out_max = max->flat<float>().data();
    double* out_sum = sum->flat<double>().data();
    std::copy_n(c->input(4).flat<float>().data(), batch, out_max);
    std::copy_n(c->input(5).flat<double>().data(), batch, out_sum);
    PoolOf(c)(batch, block, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        SoftmaxStatsRow(BestTiles(), x + i * block, block, offset,
                        t + i * width, d + i * width, width, out_max + i,
                        out_sum + i);
      }
    });
  }
};

// T is how TensorFlow names the numbers that are stored here.
template <class T, class Stored>
class SoftmaxBlockGradOp : public OpKernel {
 public:
  explicit SoftmaxBlockGradOp(OpKernelConstruction* c) : OpKernel(c) {}

  void Compute(OpKernelContext* c) override {
    const Tensor& logits = c->input(0);
    const Tensor& targets = c->input(1);
    const Tensor& target_grad = c->input(2);
    OP_REQUIRES_OK(c, CheckBlockInputs(c, "logsumexp", "upstream"));
    const int64_t batch = logits.dim_size(0), block = logits.dim_size(1);
    const int64_t width = targets.dim_size(1);
    Tensor* grad;
    constexpr bool kIsFloat = std::is_same_v<Stored, float>;
    OP_REQUIRES_OK(c, kIsFloat ? c->forward_input_or_allocate_output(
                                     {0}, 0, logits.shape(), &grad)
                               : c->allocate_output(0, logits.shape(), &grad));
    const int64_t offset = IndexOf(c->input(3));
    const float* x = logits.flat<float>().data();
    const int64_t* t = targets.flat<int64_t>().data();
    const float* g = target_grad.flat<float>().data();
    const float* lse = c->input(4).flat<float>().data();
    const float* upstream = c->input(5).flat<float>().data();
    Stored* out = reinterpret_cast<Stored*>(grad->flat<T>().data());
    PoolOf(c)(batch, block, [=](int64_t begin, int64_t end) {
      std::vector<float> row(kIsFloat ? 0 : block);
      for (int64_t i = begin; i < end; ++i) {
        float* to = row.data();
        if constexpr (kIsFloat) to = out + i * block;
        SoftmaxGradRow(BestTiles(), x + i * block, block, offset, t + i * width,
                       g + i * width, width, lse[i], upstream[i], to);
        if constexpr (!kIsFloat) {
          std::transform(row.begin(), row.end(), out + i * block, ToBf16);
        }
      }
    });
  }
};

class TopKBlockOp : public OpKernel {
 public:
  explicit TopKBlockOp(OpKernelConstruction* c) : OpKernel(c) {}

  void Compute(OpKernelContext* c) override {
    const Tensor& logits = c->input(0);
    const Tensor& scores = c->input(2);
    const Tensor& ids = c->input(3);
    OP_REQUIRES_OK(c, CheckTopK(logits, c->input(1), scores, ids));
    const int64_t batch = logits.dim_size(0), block = logits.dim_size(1);
    const int64_t k = scores.dim_size(1);
    Tensor *new_scores, *new_ids;
    // In a loop nobody else has them, and they need not be copied.
    OP_REQUIRES_OK(c, c->forward_input_or_allocate_output(
                          {2}, 0, scores.shape(), &new_scores));
    OP_REQUIRES_OK(
        c, c->forward_input_or_allocate_output({3}, 1, ids.shape(), &new_ids));
    const int64_t offset = IndexOf(c->input(1));
    const float* x = logits.flat<float>().data();
    float* s = new_scores->flat<float>().data();
    int64_t* n = new_ids->flat<int64_t>().data();
    if (!new_scores->SharesBufferWith(scores)) {
      std::copy_n(scores.flat<float>().data(), batch * k, s);
    }
    if (!new_ids->SharesBufferWith(ids)) {
      std::copy_n(ids.flat<int64_t>().data(), batch * k, n);
    }
    PoolOf(c)(batch, block / 4 + k, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        TopKBlockRow(x + i * block, block, offset, k, s + i * k, n + i * k);
      }
    });
  }
};

class WriteRowsOp : public OpKernel {
 public:
  explicit WriteRowsOp(OpKernelConstruction* c) : OpKernel(c) {}

  void Compute(OpKernelContext* c) override {
    const Tensor& buffer = c->input(0);
    const Tensor& rows = c->input(1);
    OP_REQUIRES_OK(c, CheckWriteRows(buffer, rows, c->input(2)));
    const int64_t start = IndexOf(c->input(2));
    const int64_t count = rows.dim_size(0);
    Tensor* result;
    OP_REQUIRES_OK(c, c->forward_input_or_allocate_output(
                          {0}, 0, buffer.shape(), &result));
    float* out = result->flat<float>().data();
    const float* old = buffer.flat<float>().data();
    if (out != old) std::copy_n(old, buffer.NumElements(), out);
    const int64_t width = count > 0 ? rows.NumElements() / count : 0;
    std::copy_n(rows.flat<float>().data(), rows.NumElements(),
                out + start * width);
  }
};

class EmptyLikeOp : public OpKernel {
 public:
  explicit EmptyLikeOp(OpKernelConstruction* c) : OpKernel(c) {}

  void Compute(OpKernelContext* c) override {
    Tensor* empty;
    OP_REQUIRES_OK(c, c->allocate_output(0, c->input(0).shape(), &empty));
  }
};

TFXCLASS_CPU("SoftmaxBlockStats", SoftmaxBlockStatsOp);
TFXCLASS_REGISTER(Name("Tfxclass>SoftmaxBlockGrad")
                      .Device(tensorflow::DEVICE_CPU)
                      .TypeConstraint<float>("Out"),
                  SoftmaxBlockGradOp<float, float>);
TFXCLASS_REGISTER(Name("Tfxclass>SoftmaxBlockGrad")
                      .Device(tensorflow::DEVICE_CPU)
                      .TypeConstraint<Eigen::bfloat16>("Out"),
                  SoftmaxBlockGradOp<Eigen::bfloat16, Bf16>);
TFXCLASS_CPU("TopKBlock", TopKBlockOp);
TFXCLASS_CPU("WriteRows", WriteRowsOp);
TFXCLASS_CPU("EmptyLike", EmptyLikeOp);

}  // namespace
}  // namespace tfxclass
