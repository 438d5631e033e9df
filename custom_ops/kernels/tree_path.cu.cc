#include "kernels/tree_path.cu.h"

#include "kernels/block_sort.cu.h"
#include "kernels/cuda_sort.cu.h"
#include "kernels/cuda_utils.cu.h"
#include "kernels/warp_dots.cu.h"

namespace tfxclass {
namespace {

constexpr int kThreads = 64;
constexpr int kBlocks = 10;  // at least so many samples at once on an SM
constexpr int kWarps = kThreads / kWarp;
constexpr int kSharedSteps = 2048;
constexpr int kScratchBlocks = 264;
constexpr int64_t kMostSteps = int64_t{1} << 22;
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

__device__ PathNode NodeAbove(const ClassTree& tree, const Paths& paths,
                              int n) {
  const int begin = paths.first_step[n];
  const int end =
      n + 1 < paths.num_nodes ? paths.first_step[n + 1] : paths.num_steps;
  return {tree.nodes[tree.nodes[paths.Child(begin)].parent], begin, end,
          paths.first_row[n]};
}

// A thread goes up from a label. False if the tree is unsound.
__device__ bool PushPath(const PathArgs& args, int64_t label, int64_t place,
                         uint64_t* steps, int* num_steps) {
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
__device__ void FindNodes(const ClassTree& tree, Paths* paths, int64_t* rows) {
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
__device__ Paths FindPaths(const PathArgs& args, int64_t i,
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
  for (int64_t l = threadIdx.x; l < args.labels.p; l += kThreads) {
    if (labels[l] < 0) continue;
    if (!PushPath(args, labels[l], l, paths.steps, &num_steps)) is_bad = 1;
  }
  __syncthreads();
  paths.num_steps = is_bad ? 0 : num_steps;
  int padded = 1;
  while (padded < paths.num_steps) padded *= 2;
  for (int s = paths.num_steps + threadIdx.x; s < padded; s += kThreads) {
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
  for (int n = threadIdx.x; n < paths.num_nodes; n += kThreads) {
    const PathNode above = NodeAbove(tree, paths, n);
    if (tree.NumRows(above.node) == 1) of_one(above);
  }
  if (!paths.has_wide) return;
  for (int n = threadIdx.x / kWarp; n < paths.num_nodes; n += kWarps) {
    const PathNode above = NodeAbove(tree, paths, n);
    if (tree.NumRows(above.node) > 1) of_more(above);
  }
}

__device__ void WritePathRows(const ClassTree& tree, const Paths& paths,
                              int64_t* rows) {
  ForEachNode(
      tree, paths,
      [&](const PathNode& above) {
        rows[above.first_row] = above.node.first_row;
      },
      [&](const PathNode& above) {
        const int64_t count = tree.NumRows(above.node);
        for (int64_t r = Lane(); r < count; r += kWarp) {
          rows[above.first_row + r] = above.node.first_row + r;
        }
      });
}

// Whether the rows of sample i are as many as there is room for.
__device__ bool HasRoom(const PathArgs& args, const int64_t* splits, int64_t i,
                        const Paths& paths) {
  if (splits[i + 1] - splits[i] == paths.num_rows) return true;
  if (threadIdx.x == 0) *args.unsound = 1;
  return false;
}

// A block a sample. rows_of [batch].
__global__ void __launch_bounds__(kThreads, kBlocks)
    CountPathsKernel(PathArgs args, int32_t* rows_of) {
  TFXCLASS_DYNAMIC_SHARED(unsigned char, shared);
  for (int64_t i = blockIdx.x; i < args.labels.batch; i += gridDim.x) {
    const Paths paths = FindPaths(args, i, shared);
    if (threadIdx.x == 0) rows_of[i] = paths.num_rows;
  }
}

// A block a sample.
__global__ void __launch_bounds__(kThreads, kBlocks)
    PathRowsKernel(PathArgs args, const int64_t* splits, int64_t* rows) {
  TFXCLASS_DYNAMIC_SHARED(unsigned char, shared);
  for (int64_t i = blockIdx.x; i < args.labels.batch; i += gridDim.x) {
    const Paths paths = FindPaths(args, i, shared);
    if (!HasRoom(args, splits, i, paths)) continue;
    WritePathRows(args.tree.tree, paths, rows + splits[i]);
  }
}

// products [num_rows] of a sample, a warp for several rows at once.
template <int kWidth>
__device__ void PathProducts(const float* query, const float* kernel,
                             int64_t dim, const int64_t* rows, int num_rows,
                             float* products) {
  constexpr int kTogether = 4;
  const int warp = threadIdx.x / kWarp;
  for (int r = warp * kTogether; r < num_rows; r += kWarps * kTogether) {
    const float* at[kTogether];
    float dots[kTogether], squares[kTogether];
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      at[j] = kernel + rows[min(r + j, num_rows - 1)] * dim;
    }
    WarpDots<kWidth, kTogether, false>(query, at, static_cast<int>(dim), dots,
                                       squares);
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      if (Lane() == j && r + j < num_rows) products[r + j] = dots[j];
    }
  }
}

// Turns the products of a sample into slopes; each function returns its
// thread's part of the loss. core/tree_path.h has the formulas.
struct PathSlopes {
  const ClassTree& tree;
  const Paths& paths;
  const float* weights;  // of the sample's labels
  float* products;

  // The mass of the labels below the child of step s, the first of its steps.
  __device__ float Mass(int s, int end) const {
    const int64_t child = paths.Child(s);
    float mass = weights[paths.Label(s)];
    for (++s; s < end && paths.Child(s) == child; ++s) {
      mass += weights[paths.Label(s)];
    }
    return mass;
  }
  __device__ bool IsFirst(int s, int begin) const {
    return s == begin || paths.Child(s - 1) != paths.Child(s);
  }

  __device__ double Binary(const PathNode& above) const {
    float mass[2] = {0, 0};
    for (int s = above.begin; s < above.end; ++s) {
      const bool is_right = paths.Child(s) != above.node.first_child;
      const float weight = weights[paths.Label(s)];
      mass[0] += is_right ? 0.0f : weight;
      mass[1] += is_right ? weight : 0.0f;
    }
    const float z = products[above.first_row];
    products[above.first_row] = mass[1] * Sigmoid(z) - mass[0] * Sigmoid(-z);
    double loss = 0;
    if (mass[0] != 0) loss += mass[0] * Softplus(-z);
    if (mass[1] != 0) loss += mass[1] * Softplus(z);
    return loss;
  }

  // A warp.
  __device__ double Softmax(const PathNode& above) const {
    float* const of_node = products + above.first_row;
    const int64_t count = above.node.num_children;
    float top = of_node[0];
    for (int64_t j = Lane(); j < count; j += kWarp) top = max(top, of_node[j]);
    top = WarpMax(top);
    double sum = 0;
    for (int64_t j = Lane(); j < count; j += kWarp) {
      sum += expf(of_node[j] - top);
    }
    const double log_sum = log(WarpSum(sum));
    double loss = 0, total = 0;
    for (int s = above.begin + Lane(); s < above.end; s += kWarp) {
      const float z = of_node[paths.Child(s) - above.node.first_child];
      const float weight = weights[paths.Label(s)];
      loss += weight * (log_sum - (z - top));
      total += weight;
    }
    total = WarpSum(total);
    __syncwarp();
    for (int64_t j = Lane(); j < count; j += kWarp) {
      const float log_share = static_cast<float>(of_node[j] - top - log_sum);
      of_node[j] = static_cast<float>(total) * expf(log_share);
    }
    __syncwarp();
    for (int s = above.begin + Lane(); s < above.end; s += kWarp) {
      if (!IsFirst(s, above.begin)) continue;
      of_node[paths.Child(s) - above.node.first_child] -= Mass(s, above.end);
    }
    return loss;
  }

  // Whether a step leads to `child`, by bisection.
  __device__ bool HasStep(const PathNode& above, int64_t child) const {
    int low = above.begin, high = above.end;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (paths.Child(middle) < child) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low < above.end && paths.Child(low) == child;
  }

  // Children first, first + step, ...
  __device__ double Independent(const PathNode& above, int first,
                                int step) const {
    double loss = 0;
    for (int64_t j = first; j < above.node.num_children; j += step) {
      float* const product = products + above.first_row + j;
      const bool is_positive = HasStep(above, above.node.first_child + j);
      const float z = is_positive ? -*product : *product;
      loss += Softplus(z);
      *product = is_positive ? -Sigmoid(z) : Sigmoid(z);
    }
    return loss;
  }

  __device__ double All() const {
    double loss = 0;
    ForEachNode(
        tree, paths,
        [&](const PathNode& above) {
          if (tree.independent) {
            loss += Independent(above, 0, 1);
          } else if (above.node.num_children == 2) {
            loss += Binary(above);
          } else {
            products[above.first_row] = 0;  // an only child
          }
        },
        [&](const PathNode& above) {
          loss += tree.independent ? Independent(above, Lane(), kWarp)
                                   : Softmax(above);
        });
    return loss;
  }
};

// In thread 0.
__device__ double BlockSum(double value) {
  __shared__ double of_warp[kWarps];
  value = WarpSum(value);
  __syncthreads();
  if (Lane() == 0) of_warp[threadIdx.x / kWarp] = value;
  __syncthreads();
  double sum = 0;
  for (int w = 0; w < kWarps; ++w) sum += of_warp[w];
  return sum;
}

// A block a sample.
template <int kWidth>
__global__ void __launch_bounds__(kThreads, kBlocks)
    PathLossKernel(PathArgs args, const float* queries, const float* kernel,
                   int64_t dim, const int64_t* splits, float* losses,
                   int64_t* rows, float* slopes) {
  TFXCLASS_DYNAMIC_SHARED(unsigned char, shared);
  for (int64_t i = blockIdx.x; i < args.labels.batch; i += gridDim.x) {
    const Paths paths = FindPaths(args, i, shared);
    if (!HasRoom(args, splits, i, paths)) continue;
    const ClassTree& tree = args.tree.tree;
    int64_t* const of_sample = rows + splits[i];
    float* const products = slopes + splits[i];
    WritePathRows(tree, paths, of_sample);
    __syncthreads();
    PathProducts<kWidth>(queries + i * dim, kernel, dim, of_sample,
                         paths.num_rows, products);
    __syncthreads();
    const PathSlopes path_slopes = {
        tree, paths, args.labels.weights + i * args.labels.p, products};
    const double loss = BlockSum(path_slopes.All());
    if (threadIdx.x == 0) losses[i] = static_cast<float>(loss);
  }
}

// A warp a sample: the gradient of its query, and for each of its rows whose it
// is and its part of the gradient's factor.
template <int kWidth>
__global__ void __launch_bounds__(128)
    QueryGradKernel(PathGradInput input, float* queries_grad, int32_t* owners,
                    float* factors, int32_t* unsound) {
  const int64_t i = WarpNumber();
  if (i >= input.batch) return;
  int64_t begin = input.splits[i], end = input.splits[i + 1];
  if (begin < 0 || end > input.count || begin > end) {
    if (Lane() == 0) *unsound = 1;
    begin = end = 0;
  }
  const float upstream = input.upstream[i];
  for (int64_t s = begin + Lane(); s < end; s += kWarp) {
    if (input.rows[s] < 0 || input.rows[s] >= input.num_rows) *unsound = 1;
    owners[s] = static_cast<int32_t>(i);
    factors[s] = upstream * input.slopes[s];
  }
  for (int64_t d = Lane() * kWidth; d < input.dim; d += kWarp * kWidth) {
    Pack<kWidth> sum = {};
#pragma unroll 4
    for (int64_t s = begin; s < end; ++s) {
      const int64_t row = input.rows[s];
      if (row < 0 || row >= input.num_rows) continue;
      const float factor = upstream * input.slopes[s];
      const Pack<kWidth> x =
          Load(input.kernel + row * input.dim + d, Pack<kWidth>());
#pragma unroll
      for (int j = 0; j < kWidth; ++j) sum.at[j] += factor * x.at[j];
    }
    Store(queries_grad + i * input.dim + d, sum);
  }
}

// The touched rows, sorted; the run that begins at i is row number places[i].
struct TouchedRows {
  const int64_t* sorted;
  const int32_t* order;
  const int64_t* places;
  int64_t count;
  const float* queries;
  int64_t dim;
  const int32_t* owners;
  const float* factors;
  int64_t* touched;
  float* grads;

  // Elements d and on of the gradients at sorted places [begin, end).
  template <int kWidth>
  __device__ Pack<kWidth> Sum(int64_t begin, int64_t end, int64_t d) const {
    Pack<kWidth> sum = {};
#pragma unroll 4
    for (int64_t s = begin; s < end; ++s) {
      const int32_t at = order[s];
      const float factor = factors[at];
      const Pack<kWidth> x =
          Load(queries + owners[at] * dim + d, Pack<kWidth>());
#pragma unroll
      for (int j = 0; j < kWidth; ++j) sum.at[j] += factor * x.at[j];
    }
    return sum;
  }
};

constexpr int kShortRun = 64;
constexpr int kLongThreads = 512;
constexpr int kLongWarps = kLongThreads / kWarp;

// A warp: one past the run that begins at i; i if none does, or a long one.
__device__ int64_t ShortRunEnd(const int64_t* sorted, int64_t n, int64_t i) {
  const int64_t row = sorted[i];
  if (row < 0 || (i > 0 && sorted[i - 1] == row)) return i;
  for (int64_t first = i + 1; first <= i + kShortRun; first += kWarp) {
    const int64_t at = first + Lane();
    const unsigned others =
        __ballot_sync(kAllLanes, at >= n || sorted[at] != row);
    if (others != 0) return first + __ffs(others) - 1;
  }
  return i;
}

// A warp for each sorted row: the first of a short run sums it.
template <int kWidth>
__global__ void __launch_bounds__(128) ShortRunsKernel(TouchedRows rows) {
  const int64_t i = WarpNumber();
  if (i >= rows.count) return;
  const int64_t end = ShortRunEnd(rows.sorted, rows.count, i);
  if (end == i) return;
  const int64_t place = rows.places[i];
  if (Lane() == 0) rows.touched[place] = rows.sorted[i];
  for (int64_t d = Lane() * kWidth; d < rows.dim; d += kWarp * kWidth) {
    Store(rows.grads + place * rows.dim + d, rows.Sum<kWidth>(i, end, d));
  }
}

struct Range {
  int64_t begin, end;
};

// The run of more than kShortRun equal rows whose first place that is a
// multiple of kShortRun is `at`; empty if there is none.
__device__ Range LongRun(const int64_t* sorted, int64_t n, int64_t at) {
  const int64_t row = sorted[at];
  if (row < 0 || (at >= kShortRun && sorted[at - kShortRun] == row)) {
    return {0, 0};
  }
  int64_t low = max(at - kShortRun, int64_t{-1}), high = at;
  while (high - low > 1) {  // sorted[high] is the row, what is at low is not
    const int64_t middle = (low + high) / 2;
    (sorted[middle] == row ? high : low) = middle;
  }
  const int64_t begin = high;
  if (begin + kShortRun >= n || sorted[begin + kShortRun] != row) return {0, 0};
  low = begin + kShortRun, high = n;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (sorted[middle] == row ? low : high) = middle;
  }
  return {begin, high};
}

// A block for each kShortRun sorted rows: a row near the root is touched by
// most samples. Each warp sums a stretch of the run.
template <int kWidth>
__global__ void __launch_bounds__(kLongThreads)
    LongRunsKernel(TouchedRows rows) {
  __align__(16) __shared__ float of_warp[kLongWarps][kWarp * kWidth];
  const Range run = LongRun(rows.sorted, rows.count,
                            static_cast<int64_t>(blockIdx.x) * kShortRun);
  if (run.begin == run.end) return;
  const int64_t place = rows.places[run.begin];
  if (threadIdx.x == 0) rows.touched[place] = rows.sorted[run.begin];
  const int warp = threadIdx.x / kWarp;
  const int64_t size = run.end - run.begin;
  const int64_t begin = run.begin + size * warp / kLongWarps;
  const int64_t end = run.begin + size * (warp + 1) / kLongWarps;
  for (int64_t first = 0; first < rows.dim; first += kWarp * kWidth) {
    const int64_t d = first + Lane() * kWidth;
    if (d < rows.dim) {
      Store(&of_warp[warp][Lane() * kWidth], rows.Sum<kWidth>(begin, end, d));
    }
    __syncthreads();
    for (int j = threadIdx.x; j < kWarp * kWidth; j += kLongThreads) {
      if (first + j >= rows.dim) continue;
      float sum = 0;
      for (int w = 0; w < kLongWarps; ++w) sum += of_warp[w][j];
      rows.grads[place * rows.dim + first + j] = sum;
    }
    __syncthreads();
  }
}

// How a kernel with a block a sample is launched.
struct PathLaunch {
  PathArgs args;
  int64_t blocks;
  size_t shared_bytes;
};

GpuStatus Prepare(const GpuTree& tree, const PathLabels& labels,
                  int32_t* unsound, Scratch* scratch, PathLaunch* launch) {
  const int64_t depth = tree.max_depth < 1 ? 1 : tree.max_depth;
  if (labels.p > kMostSteps / depth) {
    return "more labels a sample than 2^22 over the depth of the tree";
  }
  if (tree.tree.num_nodes >= int64_t{1} << (63 - kLabelBits)) {
    return "more nodes than 2^41 - 1 in a tree";
  }
  const int capacity = PowerOfTwo(labels.p * depth);
  const size_t bytes = size_t{16} * capacity;
  launch->args = {tree, labels, capacity, nullptr, unsound};
  launch->blocks = labels.batch;
  launch->shared_bytes = bytes;
  if (capacity <= kSharedSteps) return nullptr;
  if (launch->blocks > kScratchBlocks) launch->blocks = kScratchBlocks;
  launch->shared_bytes = 0;
  launch->args.storage = scratch->Get<unsigned char>(launch->blocks * bytes);
  return launch->args.storage == nullptr ? kNoScratch : nullptr;
}

template <class Kernel, class... Args>
GpuStatus LaunchPaths(Kernel kernel, const GpuTree& tree,
                      const PathLabels& labels, int32_t* unsound,
                      Scratch* scratch, GpuStream stream, const Args&... args) {
  if (labels.batch == 0) return nullptr;
  PathLaunch launch;
  TFXCLASS_RETURN_IF_GPU_ERROR(
      Prepare(tree, labels, unsound, scratch, &launch));
  return Launch(kernel, launch.blocks, kThreads, launch.shared_bytes, stream,
                launch.args, args...);
}

}  // namespace

GpuStatus CountTreePaths(const GpuTree& tree, const PathLabels& labels,
                         int64_t* splits, int32_t* unsound, Scratch* scratch,
                         GpuStream stream) {
  TFXCLASS_RETURN_IF_GPU_ERROR(FillBytes(unsound, 0, sizeof(*unsound), stream));
  int32_t* rows_of = scratch->Get<int32_t>(labels.batch);
  if (rows_of == nullptr) return kNoScratch;
  TFXCLASS_RETURN_IF_GPU_ERROR(LaunchPaths(CountPathsKernel, tree, labels,
                                           unsound, scratch, stream, rows_of));
  return RunningSums(rows_of, labels.batch, splits, scratch, stream);
}

GpuStatus TreePathRows(const GpuTree& tree, const PathLabels& labels,
                       const int64_t* splits, int64_t* rows, int32_t* unsound,
                       Scratch* scratch, GpuStream stream) {
  return LaunchPaths(PathRowsKernel, tree, labels, unsound, scratch, stream,
                     splits, rows);
}

GpuStatus TreePathLoss(const GpuTree& tree, const PathLabels& labels,
                       const float* queries, const float* kernel, int64_t dim,
                       const int64_t* splits, float* losses, int64_t* rows,
                       float* slopes, int32_t* unsound, Scratch* scratch,
                       GpuStream stream) {
  const bool wide = AreAligned(dim, queries, kernel);
  return LaunchPaths(wide ? PathLossKernel<4> : PathLossKernel<1>, tree, labels,
                     unsound, scratch, stream, queries, kernel, dim, splits,
                     losses, rows, slopes);
}

GpuStatus TreePathGrad(const PathGradInput& input, float* queries_grad,
                       int64_t* touched, float* touched_grads,
                       int64_t* num_touched, int32_t* unsound, Scratch* scratch,
                       GpuStream stream) {
  const int64_t n = input.count;
  TFXCLASS_RETURN_IF_GPU_ERROR(FillBytes(unsound, 0, sizeof(*unsound), stream));
  TFXCLASS_RETURN_IF_GPU_ERROR(
      FillBytes(num_touched, 0, sizeof(*num_touched), stream));
  if (input.batch == 0) return nullptr;
  int32_t* owners = scratch->Get<int32_t>(n);
  float* factors = scratch->Get<float>(n);
  if (owners == nullptr || factors == nullptr) return kNoScratch;
  // Splits that leave rows out would leave their owners as they were.
  TFXCLASS_RETURN_IF_GPU_ERROR(
      FillBytes(owners, 0, n * sizeof(*owners), stream));
  const bool wide =
      AreAligned(input.dim, input.queries, input.kernel, queries_grad);
  TFXCLASS_RETURN_IF_GPU_ERROR(
      Launch(wide ? QueryGradKernel<4> : QueryGradKernel<1>,
             BlocksOfWarps(input.batch, 128), 128, 0, stream, input,
             queries_grad, owners, factors, unsound));
  if (n == 0) return nullptr;
  Runs runs;
  int64_t* places;
  TFXCLASS_RETURN_IF_GPU_ERROR(
      FindRuns(input.rows, n, input.num_rows, &runs, scratch, stream));
  TFXCLASS_RETURN_IF_GPU_ERROR(
      NumberRuns(runs, n, &places, num_touched, scratch, stream));
  const TouchedRows rows = {runs.sorted,   runs.order,   places, n,
                            input.queries, input.dim,    owners, factors,
                            touched,       touched_grads};
  const bool wide_grads = AreAligned(input.dim, input.queries, touched_grads);
  TFXCLASS_RETURN_IF_GPU_ERROR(
      Launch(wide_grads ? ShortRunsKernel<4> : ShortRunsKernel<1>,
             BlocksOfWarps(n, 128), 128, 0, stream, rows));
  return Launch(wide_grads ? LongRunsKernel<4> : LongRunsKernel<1>,
                CeilDiv(n, kShortRun), kLongThreads, 0, stream, rows);
}

}  // namespace tfxclass
