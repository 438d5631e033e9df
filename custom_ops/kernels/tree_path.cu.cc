#include "kernels/tree_path.cu.h"

#include "kernels/block_sort.cu.h"
#include "kernels/cuda_sort.cu.h"
#include "kernels/cuda_utils.cu.h"
#include "kernels/path_steps.cu.h"
#include "kernels/warp_dots.cu.h"

namespace tfxclass {
namespace {

constexpr int kBlocks = 10;  // at least so many samples at once on an SM
constexpr int kSharedSteps = 2048;
constexpr int kScratchBlocks = 264;
constexpr int64_t kMostSteps = int64_t{1} << 22;

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
__global__ void __launch_bounds__(kPathThreads, kBlocks)
    CountPathsKernel(PathArgs args, int32_t* rows_of) {
  TFXCLASS_DYNAMIC_SHARED(unsigned char, shared);
  for (int64_t i = blockIdx.x; i < args.labels.batch; i += gridDim.x) {
    const Paths paths = FindPaths(args, i, shared);
    if (threadIdx.x == 0) rows_of[i] = paths.num_rows;
  }
}

// products [num_rows] of a sample, a warp for several rows at once.
template <int kWidth>
__device__ void PathProducts(const float* query, const float* kernel,
                             int64_t dim, const int64_t* rows, int num_rows,
                             float* products) {
  constexpr int kTogether = 4;
  const int warp = threadIdx.x / kWarp;
  for (int r = warp * kTogether; r < num_rows; r += kPathWarps * kTogether) {
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
  __shared__ double of_warp[kPathWarps];
  value = WarpSum(value);
  __syncthreads();
  if (Lane() == 0) of_warp[threadIdx.x / kWarp] = value;
  __syncthreads();
  double sum = 0;
  for (int w = 0; w < kPathWarps; ++w) sum += of_warp[w];
  return sum;
}

// A block a sample.
template <int kWidth>
__global__ void __launch_bounds__(kPathThreads, kBlocks)
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
  return Launch(kernel, launch.blocks, kPathThreads, launch.shared_bytes,
                stream, launch.args, args...);
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

}  // namespace tfxclass
