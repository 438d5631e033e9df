// Signature of the union of the active classes.
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tfxclass {
namespace {

using tensorflow::shape_inference::InferenceContext;

REGISTER_OP("Tfxclass>ActiveClasses")
    .Input("targets: int64")
    .Input("candidates: int64")
    .Input("scores: float")
    .Input("seed: int64")
    .Input("num_sampled: int64")
    .Input("candidate_share: float")
    .Input("cumulative: double")
    .Output("ids: int64")
    .Output("log_expected_count: float")
    .Output("positions: int64")
    .Output("num_targets: int64")
    .Output("num_candidates: int64")
    .Output("target_log_expected_count: float")
    .Output("places_used: float")
    .Attr("num_classes: int >= 1")
    .Attr("fill: {'uniform', 'log_uniform', 'frequency'} = 'uniform'")
    .Attr("sample_overflow: bool = true")
    .SetShapeFn([](InferenceContext* c) {
      tensorflow::shape_inference::DimensionHandle num_sampled;
      TF_RETURN_IF_ERROR(c->MakeDimForScalarInput(4, &num_sampled));
      // More targets than that are all chosen.
      const auto num_targets = c->NumElements(c->input(0));
      const bool is_known = c->ValueKnown(num_sampled) &&
                            c->ValueKnown(num_targets) &&
                            c->Value(num_targets) <= c->Value(num_sampled);
      if (!is_known) num_sampled = c->UnknownDim();
      c->set_output(0, c->Vector(num_sampled));
      c->set_output(1, c->Vector(num_sampled));
      c->set_output(2, c->input(0));
      c->set_output(3, c->Scalar());
      c->set_output(4, c->Scalar());
      c->set_output(5, c->input(0));
      c->set_output(6, c->Scalar());
      return absl::OkStatus();
    });

}  // namespace
}  // namespace tfxclass
