// Checks of sparse rows with labels, as taggers learn from.
#ifndef TFXCLASS_KERNELS_LABELED_ROWS_H_
#define TFXCLASS_KERNELS_LABELED_ROWS_H_

#include <cstdint>

#include "kernels/kernel_utils.h"

namespace tfxclass {

// Inputs `first` to `first + 4`, with their names: splits, features and values
// of sparse rows; splits and ids of the rows' labels.
inline absl::Status CheckLabeledRows(tensorflow::OpKernelContext* c, int first,
                                     const char* const* names,
                                     int64_t num_features, int64_t num_labels) {
  for (int i = 0; i < 5; ++i) {
    TF_RETURN_IF_ERROR(CheckRank(names[i], c->input(first + i), 1));
  }
  const tensorflow::Tensor &splits = c->input(first),
                           &features = c->input(first + 1),
                           &values = c->input(first + 2),
                           &label_splits = c->input(first + 3),
                           &labels = c->input(first + 4);
  if (features.NumElements() != values.NumElements()) {
    return absl::InvalidArgumentError(
        absl::StrCat("`", names[2], "` must have the shape of `", names[1],
                     "` ", ShapeText(features.shape()), ". Received: shape ",
                     ShapeText(values.shape())));
  }
  TF_RETURN_IF_ERROR(CheckSplits(names[0], splits, features.NumElements()));
  TF_RETURN_IF_ERROR(CheckSplits(names[3], label_splits, labels.NumElements(),
                                 splits.NumElements() - 1));
  TF_RETURN_IF_ERROR(CheckIds<int32_t>(names[1], features, num_features));
  TF_RETURN_IF_ERROR(CheckFinite(names[2], values));
  return CheckIds(names[4], labels, num_labels);
}

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_LABELED_ROWS_H_
