// Signatures of the loss and the search in a tree of classes.
//
// In all of them `nodes` is int64 [num_nodes, 5]: parent, first child, number
// of children, first row and class (core/class_tree.h). `max_depth` is the most
// edges from the root to a class; only the GPU has to know.
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tfxclass {
namespace {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

REGISTER_OP("Tfxclass>TreePathLoss")
    .Input("queries: float")
    .Input("kernel: float")
    .Input("nodes: int64")
    .Input("leaves: int64")
    .Input("labels: int64")
    .Input("weights: float")
    .Attr("independent: bool")
    .Attr("max_depth: int >= 1 = 64")
    .Output("losses: float")
    .Output("rows: int64")
    .Output("slopes: float")
    .Output("splits: int64")
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle queries;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, &queries));
      const auto some = c->UnknownDim();
      c->set_output(0, c->Vector(c->Dim(queries, 0)));
      c->set_output(1, c->Vector(some));
      c->set_output(2, c->Vector(some));
      c->set_output(3, c->Vector(c->UnknownDim()));
      return absl::OkStatus();
    });

REGISTER_OP("Tfxclass>TreePathGrad")
    .Input("queries: float")
    .Input("kernel: float")
    .Input("rows: int64")
    .Input("slopes: float")
    .Input("splits: int64")
    .Input("upstream: float")
    .Output("queries_grad: float")
    .Output("touched: int64")
    .Output("touched_grads: float")
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle kernel;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 2, &kernel));
      const auto some = c->UnknownDim();
      c->set_output(0, c->input(0));
      c->set_output(1, c->Vector(some));
      c->set_output(2, c->Matrix(some, c->Dim(kernel, 1)));
      return absl::OkStatus();
    });

REGISTER_OP("Tfxclass>TreeTopK")
    .Input("queries: float")
    .Input("kernel: float")
    .Input("nodes: int64")
    .Input("least: float")
    .Attr("k: int >= 1")
    .Attr("independent: bool")
    .Output("ids: int64")
    .Output("scores: float")
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle queries;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, &queries));
      int64_t k;
      TF_RETURN_IF_ERROR(c->GetAttr("k", &k));
      for (int i = 0; i < 2; ++i) {
        c->set_output(i, c->Matrix(c->Dim(queries, 0), k));
      }
      return absl::OkStatus();
    });

REGISTER_OP("Tfxclass>TreeLogProbabilities")
    .Input("logits: float")
    .Input("nodes: int64")
    .Attr("num_classes: int >= 1")
    .Attr("independent: bool")
    .Output("log_probabilities: float")
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle logits;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, &logits));
      int64_t num_classes;
      TF_RETURN_IF_ERROR(c->GetAttr("num_classes", &num_classes));
      c->set_output(0, c->Matrix(c->Dim(logits, 0), num_classes));
      return absl::OkStatus();
    });

REGISTER_OP("Tfxclass>TreeLogProbabilitiesGrad")
    .Input("logits: float")
    .Input("nodes: int64")
    .Input("upstream: float")
    .Attr("independent: bool")
    .Output("grad: float")
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->input(0));
      return absl::OkStatus();
    });

}  // namespace
}  // namespace tfxclass
