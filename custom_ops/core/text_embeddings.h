// Vectors of terms and labels, learned by a softmax of cosines.
//
// A text is the sum of the vectors of its terms, each left out with some
// probability. It is compared by cosine with the labels of its batch and with
// labels that are drawn at random. Adagrad updates the vectors that a step
// reads. It keeps a number for each vector: one for each element doubles what
// a step reads and writes, and tells no better (job titles, names, industries).
//
// A step with B texts of n terms and S labels costs 6 B S dim flops in three
// products, and reads or writes 2 B n + 2 T vectors, of T distinct terms.
// Results do not depend on the number of threads.
#ifndef TFXCLASS_CORE_TEXT_EMBEDDINGS_H_
#define TFXCLASS_CORE_TEXT_EMBEDDINGS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/parallel.h"
#include "core/philox.h"
#include "core/tile_dispatch.h"
#include "core/tile_kernels.h"
#include "core/vectors.h"

namespace tfxclass {

// Texts and their labels, each a ragged list.
struct LabeledTexts {
  const int64_t* splits;
  const int32_t* terms;
  const float* values;
  const int64_t* label_splits;
  const int64_t* labels;
};

struct EmbeddingOptions {
  int64_t num_terms = 0, num_labels = 0, dim = 0;
  // Labels of a step, where there are more; the labels of the batch are among
  // them.
  int64_t num_sampled = 512;
  float scale = 8, dropout = 0.2f;
  // Adagrad adds an offset to its sums: so many times the mean square of a
  // gradient.
  float term_rate = 0.05f, label_rate = 0.3f;
  float term_offset = 4, label_offset = 10;
  uint64_t seed = 0;
};

// Vectors that are learned, row-major, and for each the sum of the mean squares
// of its gradients.
struct EmbeddingTable {
  float* rows;
  float* sums;
  // Sum of the mean squares of the gradients so far, and their number.
  double squares = 0, steps = 0;
};

// Numbers distinct ids from 0 on, in the order of their first use.
class LocalIds {
 public:
  explicit LocalIds(int64_t size) : place_(size, -1) {}

  int32_t Add(int64_t id) {
    int32_t& place = place_[id];
    if (place < 0) {
      place = ids.size();
      ids.push_back(id);
    }
    return place;
  }

  void Clear() {
    for (const int64_t id : ids) place_[id] = -1;
    ids.clear();
  }

  int32_t Find(int64_t id) const { return place_[id]; }

  std::vector<int64_t> ids;

 private:
  std::vector<int32_t> place_;
};

inline float InverseNorm(const float* row, int64_t dim) {
  return 1 / std::sqrt(std::max(Dot(row, row, dim), 1e-12f));
}

class EmbeddingTrainer {
  // Vectors of terms that are asked for before they are read.
  static constexpr int64_t kAhead = 4;

 public:
  EmbeddingTrainer(const EmbeddingOptions& options, const LabeledTexts& texts,
                   EmbeddingTable* terms, EmbeddingTable* labels)
      : options_(options),
        texts_(texts),
        terms_(terms),
        labels_(labels),
        own_terms_(options.num_terms),
        own_labels_(options.num_labels) {}

  // A step on some texts, which have labels; the sum of their losses. `rate`
  // multiplies both rates, and `number` is that of the step.
  double Step(const int64_t* rows, int64_t count, float rate, int64_t number,
              const ParallelFor& parallel) {
    Philox random(options_.seed, number);
    ReadTerms(rows, count, &random);
    ReadLabels(rows, count, &random);
    Forward(count, parallel);
    const double loss = Compare(rows, count, parallel);
    UpdateLabels(count, rate, parallel);
    UpdateTerms(rate, parallel);
    own_terms_.Clear();
    own_labels_.Clear();
    return loss;
  }

 private:
  // Entries of the batch by text and, numbers of them, by term.
  void ReadTerms(const int64_t* rows, int64_t count, Philox* random) {
    begins_.assign(1, 0);
    places_.clear();
    values_.clear();
    texts_of_.clear();
    const uint32_t least = options_.dropout * 4294967295.0;
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t n = texts_.splits[rows[i]]; n < texts_.splits[rows[i] + 1];
           ++n) {
        if (random->Next() < least) continue;
        places_.push_back(own_terms_.Add(texts_.terms[n]));
        values_.push_back(texts_.values[n]);
        texts_of_.push_back(i);
      }
      begins_.push_back(places_.size());
    }
    const int64_t size = own_terms_.ids.size(), entries = places_.size();
    term_begins_.assign(size + 1, 0);
    for (const int32_t place : places_) ++term_begins_[place + 1];
    for (int64_t t = 0; t < size; ++t) term_begins_[t + 1] += term_begins_[t];
    next_.assign(term_begins_.begin(), term_begins_.end());
    by_term_.resize(entries);
    for (int64_t n = 0; n < entries; ++n) by_term_[next_[places_[n]]++] = n;
  }

  // The labels of the batch, and drawn ones.
  void ReadLabels(const int64_t* rows, int64_t count, Philox* random) {
    const int64_t all = options_.num_labels;
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t n = texts_.label_splits[rows[i]];
           n < texts_.label_splits[rows[i] + 1]; ++n) {
        own_labels_.Add(texts_.labels[n]);
      }
    }
    const int64_t own = own_labels_.ids.size();
    if (all <= options_.num_sampled) {
      for (int64_t label = 0; label < all; ++label) own_labels_.Add(label);
    } else {
      for (int64_t n = own; n < options_.num_sampled; ++n) {
        own_labels_.Add(random->Below(all));
      }
    }
    const int64_t size = own_labels_.ids.size();
    offsets_.assign(size, 0.0f);
    // A drawn label stands for others.
    if (size > own) {
      std::fill(offsets_.begin() + own, offsets_.end(),
                std::log(static_cast<double>(all - own) / (size - own)));
    }
  }

  int64_t UnitPanels() const { return PanelsOf(options_.dim); }

  // Unit vectors of the texts and of the labels.
  void Forward(int64_t count, const ParallelFor& parallel) {
    const int64_t dim = options_.dim, panels = PanelsOf(count);
    texts_inverse_.assign(panels * kPanel, 0.0f);
    text_panels_.assign(panels * dim * kPanel, 0.0f);
    unit_panels_.assign(UnitPanels() * count * kPanel, 0.0f);
    parallel(count, 10000, [&](int64_t begin, int64_t end) {
      std::vector<float> sum(dim);
      for (int64_t i = begin; i < end; ++i) SumText(i, count, &sum);
    });
    const int64_t size = own_labels_.ids.size();
    label_rows_.resize(size * dim);
    labels_inverse_.resize(size);
    parallel(size, dim, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        const float* from = labels_->rows + own_labels_.ids[c] * dim;
        const float inverse = InverseNorm(from, dim);
        labels_inverse_[c] = inverse;
        for (int64_t d = 0; d < dim; ++d) {
          label_rows_[c * dim + d] = from[d] * inverse;
        }
      }
    });
  }

  const float* TermRow(int64_t place) const {
    return terms_->rows + own_terms_.ids[place] * options_.dim;
  }

  // Rows lie anywhere: without this, each of them waits for memory.
  void Prefetch(const float* row) const {
    for (int64_t d = 0; d < options_.dim; d += 16) __builtin_prefetch(row + d);
  }

  void SumText(int64_t i, int64_t count, std::vector<float>* sum) {
    const int64_t dim = options_.dim;
    float* const to = sum->data();
    std::fill(sum->begin(), sum->end(), 0.0f);
    for (int64_t n = begins_[i]; n < begins_[i + 1]; ++n) {
      if (n + kAhead < begins_[i + 1]) {
        Prefetch(TermRow(places_[n + kAhead]));
      }
      const float* row = TermRow(places_[n]);
      const float value = values_[n];
      for (int64_t d = 0; d < dim; ++d) to[d] += value * row[d];
    }
    const float inverse = InverseNorm(to, dim);
    texts_inverse_[i] = inverse;
    float* const panel = text_panels_.data() + i / kPanel * dim * kPanel;
    for (int64_t d = 0; d < dim; ++d) {
      const float unit = to[d] * inverse;
      panel[d * kPanel + i % kPanel] = unit;
      unit_panels_[(d / kPanel * count + i) * kPanel + d % kPanel] = unit;
    }
  }

  // Gradients of the logits and of the sums of the texts; the sum of losses.
  double Compare(const int64_t* rows, int64_t count,
                 const ParallelFor& parallel) {
    const int64_t dim = options_.dim, panels = PanelsOf(count);
    const int64_t size = own_labels_.ids.size();
    grads_.resize(panels * size * kPanel);
    text_grads_.resize(panels * dim * kPanel);
    text_rows_.resize(count * dim);
    losses_.assign(panels, 0.0);
    parallel(panels, size * dim * 4, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p)
        losses_[p] = ComparePanel(rows, count, p);
    });
    double loss = 0;
    for (const double x : losses_) loss += x;
    return loss;
  }

  double ComparePanel(const int64_t* rows, int64_t count, int64_t p) {
    const TileKernels& tiles = BestTiles();
    const int64_t dim = options_.dim, size = own_labels_.ids.size();
    const int64_t first = p * kPanel, used = std::min(kPanel, count - first);
    const float* const texts = text_panels_.data() + p * dim * kPanel;
    float* const grads = grads_.data() + p * size * kPanel;
    tiles.multiply({label_rows_.data(), dim, 1, kPanel}, texts, size, dim,
                   false, grads, kPanel);
    for (int64_t c = 0; c < size; ++c) {
      for (int64_t j = 0; j < kPanel; ++j) {
        grads[c * kPanel + j] =
            grads[c * kPanel + j] * options_.scale + offsets_[c];
      }
    }
    float top[kPanel];
    double sums[kPanel] = {};
    std::fill_n(top, kPanel, grads[0]);
    tiles.column_max(grads, size, top);
    // The logits of the labels, before they are overwritten.
    double loss = 0;
    ForEachLabel(rows, first, used, [&](int64_t j, int64_t c, float weight) {
      loss -= weight * (grads[c * kPanel + j] - top[j]);
    });
    tiles.exponentials(grads, size, top, sums);
    float factor[kPanel] = {};
    const float whole = options_.scale / count;  // of the mean loss
    for (int64_t j = 0; j < used; ++j) {
      factor[j] = whole / sums[j];
      loss += std::log(sums[j]);
    }
    for (int64_t c = 0; c < size; ++c) {
      for (int64_t j = 0; j < kPanel; ++j) grads[c * kPanel + j] *= factor[j];
    }
    ForEachLabel(rows, first, used, [&](int64_t j, int64_t c, float weight) {
      grads[c * kPanel + j] -= whole * weight;
    });
    tiles.multiply({label_rows_.data(), 1, dim, kPanel * dim}, grads, dim, size,
                   false, text_grads_.data() + p * dim * kPanel, kPanel);
    TakeOffAlong(first, used, p);
    return loss;
  }

  // Of the gradients of unit vectors [dim, kPanel] those of the sums, by text.
  void TakeOffAlong(int64_t first, int64_t used, int64_t p) {
    const int64_t dim = options_.dim;
    const float* const units = text_panels_.data() + p * dim * kPanel;
    const float* const grads = text_grads_.data() + p * dim * kPanel;
    float along[kPanel] = {};
    for (int64_t d = 0; d < dim; ++d) {
      for (int64_t j = 0; j < kPanel; ++j) {
        along[j] += grads[d * kPanel + j] * units[d * kPanel + j];
      }
    }
    for (int64_t j = 0; j < used; ++j) {
      float* const to = text_rows_.data() + (first + j) * dim;
      const float inverse = texts_inverse_[first + j];
      for (int64_t d = 0; d < dim; ++d) {
        const int64_t n = d * kPanel + j;
        to[d] = (grads[n] - along[j] * units[n]) * inverse;
      }
    }
  }

  // Calls run(text, label, weight) for the labels of some texts of the batch.
  template <class Run>
  void ForEachLabel(const int64_t* rows, int64_t first, int64_t used,
                    const Run& run) const {
    for (int64_t j = 0; j < used; ++j) {
      const int64_t row = rows[first + j];
      const int64_t begin = texts_.label_splits[row];
      const int64_t end = texts_.label_splits[row + 1];
      for (int64_t n = begin; n < end; ++n) {
        run(j, own_labels_.Find(texts_.labels[n]), 1.0f / (end - begin));
      }
    }
  }

  void UpdateLabels(int64_t count, float rate, const ParallelFor& parallel) {
    const TileKernels& tiles = BestTiles();
    const int64_t dim = options_.dim, size = own_labels_.ids.size();
    const int64_t stride = UnitPanels() * kPanel;
    label_grads_.resize(size * stride);
    parallel(UnitPanels(), size * count * 2, [&](int64_t begin, int64_t end) {
      for (int64_t u = begin; u < end; ++u) {
        tiles.multiply({grads_.data(), kPanel, 1, size * kPanel},
                       unit_panels_.data() + u * count * kPanel, size, count,
                       false, label_grads_.data() + u * kPanel, stride);
      }
    });
    squares_.resize(size);
    parallel(size, dim * 2, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        float* const grad = label_grads_.data() + c * stride;
        const float* const unit = label_rows_.data() + c * dim;
        const float along = Dot(grad, unit, dim);
        for (int64_t d = 0; d < dim; ++d) {
          grad[d] = (grad[d] - along * unit[d]) * labels_inverse_[c];
        }
        squares_[c] = Dot(grad, grad, dim);
      }
    });
    AddSquares(labels_);
    const float offset = Offset(*labels_, options_.label_offset);
    parallel(size, dim * 4, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        Adagrad(labels_, own_labels_.ids[c], label_grads_.data() + c * stride,
                rate * options_.label_rate, offset);
      }
    });
  }

  // Adds the mean of `squares_` to those of a table.
  void AddSquares(EmbeddingTable* table) const {
    double sum = 0;
    for (const float square : squares_) sum += square;
    table->squares += sum / (squares_.size() * options_.dim);
    table->steps += 1;
  }

  // What Adagrad adds to the sums of a table.
  static float Offset(const EmbeddingTable& table, float factor) {
    return std::max(factor * table.squares / table.steps, 1e-30);
  }

  void UpdateTerms(float rate, const ParallelFor& parallel) {
    const int64_t size = own_terms_.ids.size();
    if (size == 0) return;
    // The offset is of the steps before; the first has only itself.
    if (terms_->steps == 0) {
      VisitTerms([](int64_t, const float*) {}, parallel);
      AddSquares(terms_);
    }
    const float offset = Offset(*terms_, options_.term_offset);
    VisitTerms(
        [&](int64_t id, const float* grad) {
          Adagrad(terms_, id, grad, rate * options_.term_rate, offset);
        },
        parallel);
    AddSquares(terms_);
  }

  // Calls run(id, gradient) for each term of the batch, and sets `squares_`.
  template <class Run>
  void VisitTerms(const Run& run, const ParallelFor& parallel) {
    const int64_t dim = options_.dim, size = own_terms_.ids.size();
    squares_.resize(size);
    parallel(size, dim * 16, [&](int64_t begin, int64_t end) {
      std::vector<float> grad(dim);
      for (int64_t t = begin; t < end; ++t) {
        if (t + kAhead < end) Prefetch(TermRow(t + kAhead));
        SumTerm(t, &grad);
        squares_[t] = Dot(grad.data(), grad.data(), dim);
        run(own_terms_.ids[t], grad.data());
      }
    });
  }

  void SumTerm(int64_t t, std::vector<float>* grad) const {
    const int64_t dim = options_.dim;
    std::fill(grad->begin(), grad->end(), 0.0f);
    float* const to = grad->data();
    for (int64_t m = term_begins_[t]; m < term_begins_[t + 1]; ++m) {
      const int64_t n = by_term_[m], i = texts_of_[n];
      const float value = values_[n];
      const float* const from = text_rows_.data() + i * dim;
      for (int64_t d = 0; d < dim; ++d) to[d] += value * from[d];
    }
  }

  void Adagrad(EmbeddingTable* table, int64_t id, const float* grad, float rate,
               float offset) const {
    const int64_t dim = options_.dim;
    float* const row = table->rows + id * dim;
    float& sum = table->sums[id];
    sum += Dot(grad, grad, dim) / dim;
    const float step = rate / std::sqrt(sum + offset);
    for (int64_t d = 0; d < dim; ++d) row[d] -= step * grad[d];
  }

  const EmbeddingOptions options_;
  const LabeledTexts texts_;
  EmbeddingTable* const terms_;
  EmbeddingTable* const labels_;
  // Of a step: its terms and labels, and what stands where they are numbered.
  LocalIds own_terms_, own_labels_;
  std::vector<int64_t> begins_, term_begins_, next_;
  std::vector<int32_t> places_, texts_of_, by_term_;
  std::vector<float> values_, offsets_, squares_;
  // Unit vectors of texts, [panel, dim, text] and [panel, text, unit].
  std::vector<float> text_panels_, unit_panels_, texts_inverse_;
  std::vector<float> label_rows_, labels_inverse_;
  // Gradients of logits [panel, label, text], of unit vectors, of sums.
  std::vector<float> grads_, text_grads_, text_rows_, label_grads_;
  std::vector<double> losses_;
};

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_TEXT_EMBEDDINGS_H_
