// Signature of the counter of a text's terms.
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tfxclass {
namespace {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

REGISTER_OP("Tfxclass>CountTerms")
    .Input("texts: string")
    .Output("splits: int64")
    .Output("hashes: int64")
    .Output("counts: float")
    .Attr("kind: {'words', 'chars'}")
    .Attr("shortest: int >= 1")
    .Attr("longest: int >= 1")
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle texts;
      DimensionHandle splits;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &texts));
      TF_RETURN_IF_ERROR(c->Add(c->Dim(texts, 0), 1, &splits));
      const ShapeHandle terms = c->Vector(c->UnknownDim());
      c->set_output(0, c->Vector(splits));
      c->set_output(1, terms);
      c->set_output(2, terms);
      return absl::OkStatus();
    });

}  // namespace
}  // namespace tfxclass
