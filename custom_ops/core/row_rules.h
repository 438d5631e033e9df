// What an optimizer does to one element of a row, in float or double: the same
// arithmetic on the CPU and on GPUs.
//
// An element has kSlots slots, kMoments first moments and then second ones,
// which its functions change in place. Callers
// hold them in a local array: a compiler keeps that in registers, and so
// vectorises a loop over elements.
//   Step(w, grad, square, slots): by how much w moves with a gradient and its
//     square, or the mean square of the row's where second moments are kept
//     one a row.
// All rules first take `decay` * w from w (decay = lr * weight_decay).
#ifndef TFXCLASS_CORE_ROW_RULES_H_
#define TFXCLASS_CORE_ROW_RULES_H_

#include <cmath>

#include "core/host_device.h"

namespace tfxclass {

enum class RowRule { kSgd, kAdagrad, kAdam };

struct RowRuleOptions {
  RowRule rule = RowRule::kSgd;
  float momentum = 0;
  bool nesterov = false;
  float epsilon = 0;
};

// Of a step. With Adam, learning_rate is alpha, with the bias correction
// (Kingma and Ba, end of section 2). In double, as Keras takes the betas from
// Python floats: 1 - beta is rounded once.
struct RuleNumbers {
  double learning_rate = 0, decay = 0, beta_1 = 0, beta_2 = 0;
  double offset = 0;  // Adagrad adds it to the accumulator
};

// w -= lr * g.
template <class W>
struct SgdElement {
  static constexpr int kSlots = 0, kMoments = 0;
  W learning_rate, decay;

  TFXCLASS_HD SgdElement(const RowRuleOptions&, const RuleNumbers& n)
      : learning_rate(n.learning_rate), decay(n.decay) {}

  TFXCLASS_HD W Step(W w, W grad, W, W*) const {
    return -w * decay - grad * learning_rate;
  }
};

// velocity = momentum * velocity - lr * g; w += velocity. Nesterov:
// w += momentum * velocity - lr * g.
template <class W>
struct MomentumElement {
  static constexpr int kSlots = 1, kMoments = 1;
  W learning_rate, decay, momentum;
  bool nesterov;

  TFXCLASS_HD MomentumElement(const RowRuleOptions& o, const RuleNumbers& n)
      : learning_rate(n.learning_rate),
        decay(n.decay),
        momentum(o.momentum),
        nesterov(o.nesterov) {}

  TFXCLASS_HD W Step(W w, W grad, W, W* slots) const {
    const W step = grad * learning_rate;
    slots[0] = slots[0] * momentum - step;
    return (nesterov ? slots[0] * momentum - step : slots[0]) - w * decay;
  }
};

// accumulator += g^2; w -= lr * g / sqrt(accumulator + offset).
template <class W>
struct AdagradElement {
  static constexpr int kSlots = 1, kMoments = 0;
  W learning_rate, decay, offset;

  TFXCLASS_HD AdagradElement(const RowRuleOptions&, const RuleNumbers& n)
      : learning_rate(n.learning_rate), decay(n.decay), offset(n.offset) {}

  TFXCLASS_HD W Step(W w, W grad, W square, W* slots) const {
    slots[0] += square;
    return -w * decay - learning_rate * grad / std::sqrt(slots[0] + offset);
  }
};

// m += (g - m) * m_rate; v += (g^2 - v) * v_rate;
// w -= alpha * m / (sqrt(v) + epsilon), where rate = 1 - beta. AMSGrad divides
// by the largest v so far, which does not change while v only falls.
template <class W, bool kAmsGrad>
struct AdamElement {
  static constexpr int kSlots = kAmsGrad ? 3 : 2, kMoments = 1;
  W alpha, decay, m_rate, v_rate, epsilon;

  TFXCLASS_HD AdamElement(const RowRuleOptions& o, const RuleNumbers& n)
      : alpha(n.learning_rate),
        decay(n.decay),
        m_rate(1 - n.beta_1),
        v_rate(1 - n.beta_2),
        epsilon(o.epsilon) {}

  TFXCLASS_HD W Step(W w, W grad, W square, W* slots) const {
    const W m = slots[0] + (grad - slots[0]) * m_rate;
    const W v = slots[1] + (square - slots[1]) * v_rate;
    W divisor = v;
    slots[0] = m;
    slots[1] = v;
    if (kAmsGrad) {
      const W largest = slots[2];
      divisor = largest < v ? v : largest;
      slots[2] = divisor;
    }
    return -w * decay - m * alpha / (std::sqrt(divisor) + epsilon);
  }
};

template <class Element>
struct ElementType {
  using type = Element;
};

// Calls run(ElementType<E>()) with the element of a rule that computes in W;
// the number of slots tells momentum and AMSGrad. A rule that is known when it
// is compiled is the only one that is compiled.
template <class W, RowRule kRule, class Run>
auto WithElement(int num_slots, const Run& run) {
  if constexpr (kRule == RowRule::kSgd) {
    return num_slots == 0 ? run(ElementType<SgdElement<W>>())
                          : run(ElementType<MomentumElement<W>>());
  } else if constexpr (kRule == RowRule::kAdagrad) {
    return run(ElementType<AdagradElement<W>>());
  } else {
    return num_slots < 3 ? run(ElementType<AdamElement<W, false>>())
                         : run(ElementType<AdamElement<W, true>>());
  }
}

template <class W, class Run>
auto WithElement(RowRule rule, int num_slots, const Run& run) {
  switch (rule) {
    case RowRule::kSgd:
      return WithElement<W, RowRule::kSgd>(num_slots, run);
    case RowRule::kAdagrad:
      return WithElement<W, RowRule::kAdagrad>(num_slots, run);
    case RowRule::kAdam:
      break;
  }
  return WithElement<W, RowRule::kAdam>(num_slots, run);
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_ROW_RULES_H_
