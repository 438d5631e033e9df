// The ops of GPUs.
#include "kernels/active_classes_gpu_kernels.cc"
#include "kernels/forest_gpu_kernels.cc"
#include "kernels/lsh_gpu_kernels.cc"
#include "kernels/lsh_hash_gpu_kernels.cc"
#include "kernels/row_update_gpu_kernels.cc"
#include "kernels/softmax_block_gpu_kernels.cc"
#include "kernels/tree_path_gpu_kernels.cc"
