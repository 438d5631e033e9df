// Products of a chunk of class rows with panels of queries, as the exact
// softmax (core/exact_softmax.h) needs them: in float here, of numbers rounded
// to bfloat16 in core/amx_products.h.
#ifndef TFXCLASS_CORE_QUERY_PANELS_H_
#define TFXCLASS_CORE_QUERY_PANELS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "core/tile_kernels.h"

namespace tfxclass {

// Columns of a group of panels: 256 rows of the batch.
constexpr int64_t kGroupPanels = 8;

inline int64_t CeilOf(int64_t a, int64_t b) { return a / b + (a % b != 0); }

// A thread's products with one chunk of class rows after the other.
class ChunkProducts {
 public:
  virtual ~ChunkProducts() = default;

  // Takes rows [count, dim], which stay where they are until the next ones.
  virtual void Load(const float* rows, int64_t count) = 0;

  // logits [count, kPanel] = rows times a panel of queries.
  virtual void Logits(int64_t panel, float* logits) = 0;

  // sums [dim, kPanel] += transposed rows times weights [count, kPanel].
  virtual void AddRows(const float* weights, float* sums) = 0;

  // grads [count, stride] (+)= the numbers of `panels` panels of queries from
  // `first` on, [panels, count, kPanel], times these queries. The stride is
  // `dim` in whole panels.
  virtual void RowGradients(const float* numbers, int64_t first, int64_t panels,
                            bool adds, float* grads) = 0;
};

// The queries [batch, dim] as panels, padded with zeros.
class QueryPanels {
 public:
  QueryPanels(int64_t batch, int64_t dim)
      : dim_(dim), panels_(PanelsOf(batch)) {}
  virtual ~QueryPanels() = default;

  int64_t dim() const { return dim_; }
  int64_t panels() const { return panels_; }
  int64_t groups() const { return CeilOf(panels_, kGroupPanels); }
  // The batch, padded.
  int64_t rows() const { return panels_ * kPanel; }

  // Products with chunks of at most `most` classes.
  virtual std::unique_ptr<ChunkProducts> Products(int64_t most) const = 0;

 private:
  int64_t dim_, panels_;
};

class FloatPanels : public QueryPanels {
 public:
  FloatPanels(const TileKernels& tiles, const float* queries, int64_t batch,
              int64_t dim, bool has_gradient_side)
      : QueryPanels(batch, dim), tiles_(tiles) {
    of_logits_.resize(panels() * dim * kPanel);
    for (int64_t b = 0; b < batch; ++b) {
      float* to = of_logits_.data() + b / kPanel * dim * kPanel + b % kPanel;
      for (int64_t d = 0; d < dim; ++d) to[d * kPanel] = queries[b * dim + d];
    }
    if (!has_gradient_side) return;
    of_gradient_.resize(PanelsOf(dim) * rows() * kPanel);
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t d = 0; d < dim; ++d) {
        of_gradient_[(d / kPanel * rows() + b) * kPanel + d % kPanel] =
            queries[b * dim + d];
      }
    }
  }

  std::unique_ptr<ChunkProducts> Products(int64_t) const override {
    return std::make_unique<Chunk>(*this);
  }

 private:
  class Chunk : public ChunkProducts {
   public:
    explicit Chunk(const FloatPanels& queries)
        : queries_(queries), tiles_(queries.tiles_), dim_(queries.dim()) {}

    void Load(const float* rows, int64_t count) override {
      rows_ = rows;
      count_ = count;
    }

    void Logits(int64_t panel, float* logits) override {
      const float* const of_panel =
          queries_.of_logits_.data() + panel * dim_ * kPanel;
      tiles_.multiply({rows_, dim_, 1, kPanel}, of_panel, count_, dim_, false,
                      logits, kPanel);
    }

    void AddRows(const float* weights, float* sums) override {
      tiles_.multiply({rows_, 1, dim_, kPanel * dim_}, weights, dim_, count_,
                      true, sums, kPanel);
    }

    void RowGradients(const float* numbers, int64_t first, int64_t panels,
                      bool adds, float* grads) override {
      const int64_t dim_panels = PanelsOf(dim_);
      for (int64_t d = 0; d < dim_panels; ++d) {
        const float* const of_panel =
            queries_.of_gradient_.data() +
            (d * queries_.rows() + first * kPanel) * kPanel;
        tiles_.multiply({numbers, kPanel, 1, count_ * kPanel}, of_panel, count_,
                        panels * kPanel, adds, grads + d * kPanel,
                        dim_panels * kPanel);
      }
    }

   private:
    const FloatPanels& queries_;
    const TileKernels& tiles_;
    const int64_t dim_;
    const float* rows_ = nullptr;
    int64_t count_ = 0;
  };

  const TileKernels& tiles_;
  // [panels, dim, kPanel] and [panels of dimensions, rows, kPanel].
  std::vector<float> of_logits_, of_gradient_;
};

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_QUERY_PANELS_H_
