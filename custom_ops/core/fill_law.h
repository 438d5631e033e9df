// By which law active classes are filled up: how likely each class is, and the
// expected counts that follow. The same arithmetic on the CPU and on GPUs.
#ifndef TFXCLASS_CORE_FILL_LAW_H_
#define TFXCLASS_CORE_FILL_LAW_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/host_device.h"
#include "core/philox.h"

namespace tfxclass {

enum class FillLaw { kUniform, kLogUniform, kFrequency };

// Laws of a fill: Draw() gives class c with chance Probability(c).

// P(c) = log((c + 2) / (c + 1)) / log(num_classes + 1).
class LogUniformLaw {
 public:
  TFXCLASS_HD explicit LogUniformLaw(int64_t num_classes)
      : num_classes_(num_classes), range_(log(num_classes + 1.0)) {}

  int64_t Draw(Philox* random) const {
    const double draw = std::exp(random->UniformDouble() * range_);
    return std::min(static_cast<int64_t>(draw) - 1, num_classes_ - 1);
  }

  TFXCLASS_HD double Probability(int64_t id) const {
    return log1p(1.0 / (id + 1.0)) / range_;
  }

 private:
  int64_t num_classes_;
  double range_;
};

// Given by running sums of weights; O(log num_classes) a draw.
class FrequencyLaw {
 public:
  TFXCLASS_HD FrequencyLaw(const double* cumulative, int64_t num_classes)
      : begin_(cumulative), end_(cumulative + num_classes) {}

  int64_t Draw(Philox* random) const {
    // Below the total: there lies a class with weight.
    const double total = end_[-1];
    const double target =
        std::min(random->UniformDouble() * total, std::nextafter(total, 0.0));
    return std::upper_bound(begin_, end_, target) - begin_;
  }

  TFXCLASS_HD double Probability(int64_t id) const {
    const double before = id > 0 ? begin_[id - 1] : 0.0;
    return (begin_[id] - before) / end_[-1];
  }

 private:
  const double *begin_, *end_;
};

// How long until a class with probability p > 0 rings, as an event of a Poisson
// process with that rate.
TFXCLASS_HD inline double RingAfter(double p, Philox* random) {
  return -log(random->UniformDouble()) / p;
}

// log of the chance that a class has rung by then.
TFXCLASS_HD inline double LogRung(double p, double time) {
  return log(-expm1(-p * time));
}

// Of a uniform fill by `filled` of the `rest` of the classes: the log chance
// that one of them is in, 0 where none is filled, and that of one more class,
// were it one of the rest.
TFXCLASS_HD inline double LogFilled(double filled, double rest) {
  return filled > 0 ? log(filled / rest) : 0.0;
}
TFXCLASS_HD inline double LogFilledOneMore(double filled, double rest) {
  return log((filled + 1) / (rest + 1));
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_FILL_LAW_H_
