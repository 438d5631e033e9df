// Sampled classes, softmaxes, and trees of classes.
#include "kernels/active_classes_kernels.cc"
#include "kernels/exact_softmax_kernels.cc"
#include "kernels/neighbor_memory_kernels.cc"
#include "kernels/softmax_block_kernels.cc"
#include "kernels/tree_path_kernels.cc"
#include "kernels/tree_search_kernels.cc"
