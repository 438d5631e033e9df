// Signatures of the optimizers' steps on touched rows.
//
// `variable` and `slots` are float32 of one shape [num_rows, ...], `last_step`
// int64 [num_rows] where rows are caught up. `step` counts the steps done
// before this one; `decay` is learning rate times weight decay.
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tfxclass {
namespace {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

absl::Status NoOutput(InferenceContext*) { return absl::OkStatus(); }

absl::Status SumShape(InferenceContext* c) {
  ShapeHandle grads;
  TF_RETURN_IF_ERROR(c->WithRankAtLeast(c->input(1), 1, &grads));
  TF_RETURN_IF_ERROR(c->ReplaceDim(grads, 0, c->UnknownDim(), &grads));
  c->set_output(0, c->Vector(InferenceContext::kUnknownDim));
  c->set_output(1, grads);
  return absl::OkStatus();
}

REGISTER_OP("Tfxclass>LazySgdUpdate")
    .Input("variable: resource")
    .Input("slots: num_slots * resource")
    .Input("last_step: num_last_step * resource")
    .Input("ids: int64")
    .Input("grads: float")
    .Input("step: int64")
    .Input("learning_rate: float")
    .Input("decay: float")
    .Attr("num_slots: int >= 0")
    .Attr("num_last_step: int >= 0")
    .Attr("momentum: float")
    .Attr("nesterov: bool")
    .SetIsStateful()
    .SetShapeFn(NoOutput);

REGISTER_OP("Tfxclass>LazySgdCatchUp")
    .Input("variable: resource")
    .Input("slots: num_slots * resource")
    .Input("last_step: num_last_step * resource")
    .Input("ids: int64")
    .Input("step: int64")
    .Input("decay: float")
    .Attr("num_slots: int >= 0")
    .Attr("num_last_step: int = 1")
    .Attr("momentum: float")
    .Attr("nesterov: bool")
    .SetIsStateful()
    .SetShapeFn(NoOutput);

REGISTER_OP("Tfxclass>LazyAdagradUpdate")
    .Input("variable: resource")
    .Input("slots: num_slots * resource")
    .Input("last_step: num_last_step * resource")
    .Input("ids: int64")
    .Input("grads: float")
    .Input("step: int64")
    .Input("learning_rate: float")
    .Input("decay: float")
    .Attr("num_slots: int >= 0")
    .Attr("num_last_step: int >= 0")
    .Attr("epsilon: float")
    .SetIsStateful()
    .SetShapeFn(NoOutput);

REGISTER_OP("Tfxclass>LazyAdagradCatchUp")
    .Input("variable: resource")
    .Input("slots: num_slots * resource")
    .Input("last_step: num_last_step * resource")
    .Input("ids: int64")
    .Input("step: int64")
    .Input("decay: float")
    .Attr("num_slots: int >= 0")
    .Attr("num_last_step: int = 1")
    .Attr("epsilon: float")
    .SetIsStateful()
    .SetShapeFn(NoOutput);

REGISTER_OP("Tfxclass>LazyAdamUpdate")
    .Input("variable: resource")
    .Input("slots: num_slots * resource")
    .Input("last_step: num_last_step * resource")
    .Input("ids: int64")
    .Input("grads: float")
    .Input("step: int64")
    .Input("alpha: float")
    .Input("decay: float")
    .Input("beta_1: double")
    .Input("beta_2: double")
    .Attr("num_slots: int >= 0")
    .Attr("num_last_step: int >= 0")
    .Attr("epsilon: float")
    .SetIsStateful()
    .SetShapeFn(NoOutput);

REGISTER_OP("Tfxclass>LazyAdamCatchUp")
    .Input("variable: resource")
    .Input("slots: num_slots * resource")
    .Input("last_step: num_last_step * resource")
    .Input("ids: int64")
    .Input("step: int64")
    .Input("learning_rate: float")
    .Input("decay: float")
    .Input("beta_1: double")
    .Input("beta_2: double")
    .Attr("num_slots: int >= 0")
    .Attr("num_last_step: int = 1")
    .Attr("epsilon: float")
    .SetIsStateful()
    .SetShapeFn(NoOutput);

REGISTER_OP("Tfxclass>SumDuplicateRows")
    .Input("ids: int64")
    .Input("grads: float")
    .Output("unique_ids: int64")
    .Output("sums: float")
    .SetShapeFn(SumShape);

}  // namespace
}  // namespace tfxclass
