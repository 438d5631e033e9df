// Signatures of the exact softmax in two passes over the class rows.
//
// queries [batch, dim]; kernel [classes, dim], each row divided by its norm, at
// least the root of `epsilon`, where that is > 0; bias [classes], if any;
// targets [batch, p] with -1 for padding, none twice in a row, and a number for
// each of them. With `bfloat16_products` the factors of products are rounded to
// bfloat16 where a processor multiplies these faster (AMX); sums are float.
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tfxclass {
namespace {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

absl::Status SumsShape(InferenceContext* c) {
  ShapeHandle queries;
  bool wants_rows;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, &queries));
  TF_RETURN_IF_ERROR(c->GetAttr("wants_rows", &wants_rows));
  const DimensionHandle batch = c->Dim(queries, 0);
  c->set_output(0, c->Vector(batch));
  c->set_output(1, c->Vector(batch));
  c->set_output(
      2, c->Matrix(wants_rows ? batch : c->MakeDim(0), c->Dim(queries, 1)));
  c->set_output(3, c->Vector(c->UnknownDim()));
  c->set_output(4, c->Vector(c->UnknownDim()));
  return absl::OkStatus();
}

absl::Status GradShape(InferenceContext* c) {
  ShapeHandle kernel;
  int num_bias;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 2, &kernel));
  TF_RETURN_IF_ERROR(c->GetAttr("num_bias", &num_bias));
  c->set_output(0, kernel);
  c->set_output(1, c->Vector(num_bias ? c->Dim(kernel, 0) : c->MakeDim(0)));
  return absl::OkStatus();
}

// The log-sum-exp of a row's logits, those of the targets raised by `deltas`,
// is top + log(total). `rows` is the sum of exp(logit - top) * row over all
// classes but the targets, [0, dim] without `wants_rows`. The `exponentials` of
// logits less their `shifts` are empty if they take more than `kept_bytes`.
REGISTER_OP("Tfxclass>ExactSoftmax")
    .Input("queries: float")
    .Input("kernel: T")
    .Input("bias: num_bias * float")
    .Input("targets: int64")
    .Input("deltas: float")
    .Output("top: float")
    .Output("total: double")
    .Output("rows: float")
    .Output("exponentials: float")
    .Output("shifts: float")
    .Attr("T: {bfloat16, float} = DT_FLOAT")
    .Attr("num_bias: int >= 0")
    .Attr("epsilon: float = 0.0")
    .Attr("bfloat16_products: bool = false")
    .Attr("wants_rows: bool")
    .Attr("kept_bytes: int = 0")
    .SetShapeFn(SumsShape);

// Of the logits, factor * (softmax - uniform), but at the targets target_grads
// - factor * uniform; of these the gradients of kernel and bias. `kept` are the
// exponentials and shifts of the same inputs, or nothing or empty.
REGISTER_OP("Tfxclass>ExactSoftmaxGrad")
    .Input("queries: float")
    .Input("kernel: T")
    .Input("bias: num_bias * float")
    .Input("targets: int64")
    .Input("target_grads: float")
    .Input("logsumexp: float")
    .Input("factor: float")
    .Input("kept: num_kept * float")
    .Output("kernel_grad: float")
    .Output("bias_grad: float")
    .Attr("T: {bfloat16, float} = DT_FLOAT")
    .Attr("num_bias: int >= 0")
    .Attr("num_kept: int >= 0")
    .Attr("epsilon: float = 0.0")
    .Attr("bfloat16_products: bool = false")
    .Attr("uniform: float = 0.0")
    .SetShapeFn(GradShape);

}  // namespace
}  // namespace tfxclass
