// Indexes of class vectors: forests, hash tables, groups.
#include "kernels/forest_kernels.cc"
#include "kernels/group_kernels.cc"
#include "kernels/kmeans_kernels.cc"
#include "kernels/lsh_hash_kernels.cc"
#include "kernels/lsh_kernels.cc"
