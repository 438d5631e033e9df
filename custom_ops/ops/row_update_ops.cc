// Signatures of the optimizers' steps on touched rows.
//
// `variable` is of type T and shape [num_rows, ...], `slots` of type S and the
// same shape; T is S, or bfloat16 with a float S: then rows are rounded
// stochastically, by random numbers of `seed`, `step` and the row. With
// `row_moments`, where S is float, second moments are float [num_rows]: they
// are of the mean of the squares of a row. With `bfloat16_moments`, which needs
// `row_moments`, first moments are bfloat16, rounded stochastically.
// `decay` is learning rate times weight decay.
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tfxclass {
namespace {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

absl::Status NoOutput(InferenceContext*) { return absl::OkStatus(); }

absl::Status UnknownVector(InferenceContext* c) {
  c->set_output(0, c->Vector(InferenceContext::kUnknownDim));
  return absl::OkStatus();
}

absl::Status SumShape(InferenceContext* c) {
  ShapeHandle grads;
  TF_RETURN_IF_ERROR(c->WithRankAtLeast(c->input(1), 1, &grads));
  TF_RETURN_IF_ERROR(c->ReplaceDim(grads, 0, c->UnknownDim(), &grads));
  c->set_output(0, c->Vector(InferenceContext::kUnknownDim));
  c->set_output(1, grads);
  return absl::OkStatus();
}

#define TFXCLASS_ROWS(name)                                  \
  REGISTER_OP("Tfxclass>" name)                              \
      .Input("variable: resource")                           \
      .Input("slots: num_slots * resource")                  \
      .Attr("T: {half, bfloat16, float, double} = DT_FLOAT") \
      .Attr("S: {half, bfloat16, float, double} = DT_FLOAT") \
      .Attr("row_moments: bool = false")                     \
      .Attr("bfloat16_moments: bool = false")                \
      .Attr("seed: int = 0")                                 \
      .Attr("num_slots: int >= 0")                           \
      .SetIsStateful()                                       \
      .Input("ids: int64")

#define TFXCLASS_UPDATE(name) \
  TFXCLASS_ROWS(name)         \
      .Input("grads: S")      \
      .Input("step: int64")   \
      .SetShapeFn(NoOutput)

TFXCLASS_UPDATE("LazySgdUpdate")
    .Input("learning_rate: double")
    .Input("decay: double")
    .Attr("momentum: float")
    .Attr("nesterov: bool");

TFXCLASS_UPDATE("LazyAdagradUpdate")
    .Input("learning_rate: double")
    .Input("decay: double")
    .Input("offset: double");

TFXCLASS_UPDATE("LazyAdamUpdate")
    .Input("alpha: double")
    .Input("decay: double")
    .Input("beta_1: double")
    .Input("beta_2: double")
    .Attr("epsilon: float");

// Steps of all rows of a kernel [classes, dim] with the gradient that
// Tfxclass>ExactSoftmaxGrad returns, which is not held: each chunk of classes
// moves as soon as its part is there. `ids` are not looked at.
#define TFXCLASS_CLASS_UPDATE(name)            \
  TFXCLASS_ROWS(name)                          \
      .Input("step: int64")                    \
      .Input("queries: float")                 \
      .Input("bias: num_bias * float")         \
      .Input("targets: int64")                 \
      .Input("target_grads: float")            \
      .Input("logsumexp: float")               \
      .Input("factor: float")                  \
      .Input("kept: num_kept * float")         \
      .Attr("num_bias: int >= 0")              \
      .Attr("num_kept: int >= 0")              \
      .Attr("epsilon_of_norm: float")          \
      .Attr("uniform: float")                  \
      .Attr("bfloat16_products: bool = false") \
      .Output("bias_grad: float")              \
      .SetShapeFn(UnknownVector)

TFXCLASS_CLASS_UPDATE("ClassSgdUpdate")
    .Input("learning_rate: double")
    .Input("decay: double")
    .Attr("momentum: float")
    .Attr("nesterov: bool");

TFXCLASS_CLASS_UPDATE("ClassAdagradUpdate")
    .Input("learning_rate: double")
    .Input("decay: double")
    .Input("offset: double");

TFXCLASS_CLASS_UPDATE("ClassAdamUpdate")
    .Input("alpha: double")
    .Input("decay: double")
    .Input("beta_1: double")
    .Input("beta_2: double")
    .Attr("epsilon: float");

#undef TFXCLASS_CLASS_UPDATE
#undef TFXCLASS_UPDATE
#undef TFXCLASS_ROWS

REGISTER_OP("Tfxclass>SumDuplicateRows")
    .Input("ids: int64")
    .Input("grads: T")
    .Output("unique_ids: int64")
    .Output("sums: T")
    .Attr("T: {float, double} = DT_FLOAT")
    .SetShapeFn(SumShape);

}  // namespace
}  // namespace tfxclass
