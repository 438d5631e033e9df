// Signatures that every refreshing index has; kernels in kernels/index_op.h.
#ifndef TFXCLASS_OPS_INDEX_OPS_H_
#define TFXCLASS_OPS_INDEX_OPS_H_

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tfxclass {

inline absl::Status IndexSaveShape(
    tensorflow::shape_inference::InferenceContext* c) {
  c->set_output(0, c->Scalar());
  c->set_output(1, c->Scalar());
  c->set_output(2, c->Vector(3));
  c->set_output(3, c->Vector(c->UnknownDim()));
  return absl::OkStatus();
}

inline absl::Status IndexTimesShape(
    tensorflow::shape_inference::InferenceContext* c) {
  c->set_output(0, c->Scalar());
  c->set_output(1, c->Scalar());
  return absl::OkStatus();
}

// ids and scores [queries, num_neighbors] of inputs 2 and 3.
inline absl::Status IndexQueryShape(
    tensorflow::shape_inference::InferenceContext* c) {
  tensorflow::shape_inference::ShapeHandle queries;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(2), 2, &queries));
  tensorflow::shape_inference::DimensionHandle k;
  TF_RETURN_IF_ERROR(c->MakeDimForScalarInput(3, &k));
  c->set_output(0, c->Matrix(c->Dim(queries, 0), k));
  c->set_output(1, c->Matrix(c->Dim(queries, 0), k));
  return absl::OkStatus();
}

// prefix: "Tfxclass>Forest".
#define REGISTER_INDEX_OPS(prefix)                           \
  REGISTER_OP(prefix "Handle")                               \
      .Output("index: resource")                             \
      .Attr("container: string = ''")                        \
      .Attr("shared_name: string = ''")                      \
      .SetIsStateful()                                       \
      .SetShapeFn(tensorflow::shape_inference::ScalarShape); \
  REGISTER_OP(prefix "Mark")                                 \
      .Input("index: resource")                              \
      .Input("ids: int64")                                   \
      .SetIsStateful()                                       \
      .SetShapeFn(tensorflow::shape_inference::NoOutputs);   \
  REGISTER_OP(prefix "Times")                                \
      .Input("index: resource")                              \
      .Output("count: int64")                                \
      .Output("seconds: double")                             \
      .SetIsStateful()                                       \
      .SetShapeFn(IndexTimesShape);                          \
  REGISTER_OP(prefix "Save")                                 \
      .Input("index: resource")                              \
      .Output("ready: string")                               \
      .Output("pending: string")                             \
      .Output("steps: int64")                                \
      .Output("touched: int64")                              \
      .SetIsStateful()                                       \
      .SetShapeFn(IndexSaveShape);                           \
  REGISTER_OP(prefix "Restore")                              \
      .Input("index: resource")                              \
      .Input("ready: string")                                \
      .Input("pending: string")                              \
      .Input("steps: int64")                                 \
      .Input("touched: int64")                               \
      .SetIsStateful()                                       \
      .SetShapeFn(tensorflow::shape_inference::NoOutputs)

}  // namespace tfxclass

#endif  // TFXCLASS_OPS_INDEX_OPS_H_
