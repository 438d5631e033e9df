// The edges of the paths of a sample's labels in a tree, found by a block; for
// tree_path.cu.cc.
#ifndef TFXCLASS_KERNELS_PATH_STEPS_CU_H_
#define TFXCLASS_KERNELS_PATH_STEPS_CU_H_

#include "kernels/block_sort.cu.h"
#include "kernels/cuda_utils.cu.h"
#include "kernels/tree_path.cu.h"

namespace tfxclass {

constexpr int kPathThreads = 64;
constexpr int kPathWarps = kPathThreads / kWarp;
constexpr int kLabelBits = 22;

// What all blocks of a launch have.
struct PathArgs {
  GpuTree tree;
  PathLabels labels;
  int capacity;            // edges of a sample, a power of two
  unsigned char* storage;  // [blocks, capacity, 16], or null: shared memory
  int32_t* unsound;
};

// The edges of a sample, sorted by child and then by label, and the nodes above
// them. An edge is child << kLabelBits | place of the label.
struct Paths {
  uint64_t* steps;
  int32_t* first_step;  // of each node
  int32_t* first_row;   // of each node, counted from the sample's first
  int num_steps, num_nodes, num_rows;
  bool has_wide;  // nodes with more than one row

  __device__ int64_t Child(int step) const {
    return static_cast<int64_t>(steps[step] >> kLabelBits);
  }
  __device__ int64_t Label(int step) const {
    return static_cast<int64_t>(steps[step] & ((1u << kLabelBits) - 1));
  }
};

// A node above steps [begin, end), whose rows are first_row and on.
struct PathNode {
  TreeNode node;
  int begin, end, first_row;
};

__device__ inline PathNode NodeAbove(const ClassTree& tree, const Paths& paths,
                                     int n) {
  const int begin = paths.first_step[n];
  const int end =
      n + 1 < paths.num_nodes ? paths.first_step[n + 1] : paths.num_steps;
  return {tree.nodes[tree.nodes[paths.Child(begin)].parent], begin, end,
          paths.first_row[n]};
}

// A thread goes up from a label. False if the tree is unsound.
__device__ inline bool PushPath(const PathArgs& args, int64_t label,
                                int64_t place, uint64_t* steps,
                                int* num_steps) {
  const ClassTree& tree = args.tree.tree;
  if (!tree.IsClass(label)) return false;
  int64_t node = args.tree.leaves[label];
  if (!tree.IsSound(node) || !tree.nodes[node].is_leaf()) return false;
  for (int64_t depth = 0; node > 0; ++depth) {
    const int64_t parent = tree.nodes[node].parent;
    if (depth >= args.tree.max_depth || !tree.IsSound(parent)) return false;
    const int64_t child = node - tree.nodes[parent].first_child;
    if (child < 0 || child >= tree.nodes[parent].num_children) return false;
    const int at = atomicAdd(num_steps, 1);
    if (at >= args.capacity) return false;
    steps[at] = static_cast<uint64_t>(node) << kLabelBits | place;
    node = parent;
  }
  return true;
}

// A warp finds the nodes above sorted steps, and where their rows begin.
__device__ inline void FindNodes(const ClassTree& tree, Paths* paths,
                                 int64_t* rows) {
  *rows = 0;
  paths->num_nodes = 0;
  paths->has_wide = false;
  for (int first = 0; first < paths->num_steps; first += kWarp) {
    const int i = first + Lane();
    int64_t size = 0;
    bool begins = false;
    if (i < paths->num_steps) {
      const int64_t parent = tree.nodes[paths->Child(i)].parent;
      begins = i == 0 || tree.nodes[paths->Child(i - 1)].parent != parent;
      if (begins) size = tree.NumRows(tree.nodes[parent]);
    }
    int64_t sum = size;  // of this lane and those before it
    for (int offset = 1; offset < kWarp; offset *= 2) {
      const int64_t before = __shfl_up_sync(kAllLanes, sum, offset);
      if (Lane() >= offset) sum += before;
    }
    const unsigned mask = __ballot_sync(kAllLanes, begins);
    if (begins) {
      const int n = paths->num_nodes + __popc(mask & ((1u << Lane()) - 1));
      paths->first_step[n] = i;
      paths->first_row[n] = static_cast<int32_t>(*rows + sum - size);
    }
    paths->num_nodes += __popc(mask);
    *rows += __shfl_sync(kAllLanes, sum, kWarp - 1);
    paths->has_wide |= __any_sync(kAllLanes, size > 1);
  }
}

// All threads of the block find the paths of sample i, the same in each. None,
// and *unsound set, if they lead out of the tree.
__device__ inline Paths FindPaths(const PathArgs& args, int64_t i,
                                  unsigned char* shared) {
  __shared__ int num_steps, is_bad;
  __shared__ Paths found;
  __syncthreads();  // those of the sample before are read
  if (threadIdx.x == 0) num_steps = is_bad = 0;
  Paths paths = {};
  unsigned char* storage = shared;
  if (args.storage != nullptr) {
    storage =
        args.storage + static_cast<int64_t>(blockIdx.x) * args.capacity * 16;
  }
  paths.steps = reinterpret_cast<uint64_t*>(storage);
  paths.first_step = reinterpret_cast<int32_t*>(paths.steps + args.capacity);
  paths.first_row = paths.first_step + args.capacity;
  __syncthreads();
  const int64_t* labels = args.labels.labels + i * args.labels.p;
  for (int64_t l = threadIdx.x; l < args.labels.p; l += kPathThreads) {
    if (labels[l] < 0) continue;
    if (!PushPath(args, labels[l], l, paths.steps, &num_steps)) is_bad = 1;
  }
  __syncthreads();
  paths.num_steps = is_bad ? 0 : num_steps;
  int padded = 1;
  while (padded < paths.num_steps) padded *= 2;
  for (int s = paths.num_steps + threadIdx.x; s < padded; s += kPathThreads) {
    paths.steps[s] = ~uint64_t{0};
  }
  BlockSort(paths.steps, padded);
  if (threadIdx.x < kWarp) {
    int64_t rows;
    FindNodes(args.tree.tree, &paths, &rows);
    // Rows of sound nodes are distinct, so fewer than there are.
    const bool fits = rows <= args.tree.tree.num_rows && rows <= INT32_MAX;
    if (Lane() == 0) {
      if (is_bad || !fits) *args.unsound = 1;
      paths.num_rows = static_cast<int>(rows);
      if (!fits) paths.num_steps = paths.num_nodes = paths.num_rows = 0;
      found = paths;
    }
  }
  __syncthreads();
  return found;
}

// of_one(node) by a thread for nodes with one row, of_more(node) by a warp for
// the others.
template <class OfOne, class OfMore>
__device__ __forceinline__ void ForEachNode(const ClassTree& tree,
                                            const Paths& paths,
                                            const OfOne& of_one,
                                            const OfMore& of_more) {
  for (int n = threadIdx.x; n < paths.num_nodes; n += kPathThreads) {
    const PathNode above = NodeAbove(tree, paths, n);
    if (tree.NumRows(above.node) == 1) of_one(above);
  }
  if (!paths.has_wide) return;
  for (int n = threadIdx.x / kWarp; n < paths.num_nodes; n += kPathWarps) {
    const PathNode above = NodeAbove(tree, paths, n);
    if (tree.NumRows(above.node) > 1) of_more(above);
  }
}

}  // namespace tfxclass

#endif  // TFXCLASS_KERNELS_PATH_STEPS_CU_H_
