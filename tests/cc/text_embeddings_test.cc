// Text embeddings: threads, odd shapes, vectors that a step leaves alone.
#include "core/text_embeddings.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include "check.h"
#include "threads.h"

namespace tfxclass {
namespace {

// Random texts; term 0 and label 0 are of none.
struct Case {
  Case(int64_t texts, int64_t terms, int64_t labels, int64_t dim) {
    Philox random(7);
    options.num_terms = terms;
    options.num_labels = labels;
    options.dim = dim;
    options.num_sampled = 5;
    for (int64_t i = 0; i < texts; ++i) {
      for (int64_t t = 1; t < terms; ++t) {
        if (random.Below(3)) continue;
        term.push_back(t);
        value.push_back(random.Uniform() - 0.3f);
      }
      split.push_back(term.size());
      label.push_back(1 + random.Below(labels - 1));
      if (i % 3 == 0) label.push_back(1 + random.Below(labels - 1));
      label_split.push_back(label.size());
      order.push_back(i);
    }
    for (int64_t n = 0; n < terms * dim; ++n) rows.push_back(random.Uniform());
    for (int64_t n = 0; n < labels * dim; ++n) {
      label_rows.push_back(random.Uniform());
    }
    sums.assign(terms, 0);
    label_sums.assign(labels, 0);
  }

  // The sum of the losses of some steps; the vectors change.
  double Run(int64_t steps, const ParallelFor& parallel) {
    EmbeddingTable terms = {rows.data(), sums.data()};
    EmbeddingTable labels = {label_rows.data(), label_sums.data()};
    EmbeddingTrainer trainer(options,
                             {split.data(), term.data(), value.data(),
                              label_split.data(), label.data()},
                             &terms, &labels);
    double loss = 0;
    for (int64_t step = 0; step < steps; ++step) {
      loss += trainer.Step(order.data(), order.size(), 1, step, parallel);
    }
    return loss;
  }

  EmbeddingOptions options;
  std::vector<int64_t> split{0}, label_split{0}, label, order;
  std::vector<int32_t> term;
  std::vector<float> value, rows, label_rows, sums, label_sums;
};

void SameWhateverTheThreads() {
  for (const int64_t dim : {1, 8, 40}) {
    Case one(37, 20, 11, dim), many(37, 20, 11, dim);
    const double loss = one.Run(3, SerialFor);
    CHECK(loss == many.Run(3, ThreadedFor));
    CHECK(std::isfinite(loss) && loss > 0);
    CHECK(one.rows == many.rows && one.label_rows == many.label_rows);
    CHECK(one.sums == many.sums && one.label_sums == many.label_sums);
  }
}

void WhatNoTextHasStays() {
  Case some(37, 20, 11, 8);
  some.options.num_sampled = 1;  // the labels of the texts alone
  const Case before = some;
  some.Run(2, SerialFor);
  for (int64_t d = 0; d < 8; ++d) {
    CHECK(some.rows[d] == before.rows[d]);
    CHECK(some.label_rows[d] == before.label_rows[d]);
    CHECK(some.rows[8 + d] != before.rows[8 + d]);
  }
}

void LossFalls() {
  Case some(64, 30, 9, 16);
  some.options.num_sampled = 9;
  const double first = some.Run(1, SerialFor);
  some.Run(200, SerialFor);
  CHECK(some.Run(1, SerialFor) < 0.8 * first);
}

void TextsMayBeEmpty() {
  Case some(3, 2, 4, 8);
  std::fill(some.split.begin(), some.split.end(), 0);
  const Case before = some;
  CHECK(std::isfinite(some.Run(2, SerialFor)));
  CHECK(some.rows == before.rows);
  some.order.clear();
  CHECK(some.Run(1, SerialFor) == 0);
}

}  // namespace
}  // namespace tfxclass

int main() {
  tfxclass::SameWhateverTheThreads();
  tfxclass::WhatNoTextHasStays();
  tfxclass::LossFalls();
  tfxclass::TextsMayBeEmpty();
  return 0;
}
