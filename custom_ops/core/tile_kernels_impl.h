// The functions of core/tile_kernels.h for one instruction set. No include
// guard: it is included once for each, in a namespace of its own, where
// TFXCLASS_TILE_LANES is the floats in a vector (8 or 16) and
// TFXCLASS_TILE_ROWS the rows of a tile, whose sums stay in registers. Include
// before it, outside: <algorithm>, <cstdint>, <cstring>, <limits> and
// core/tile_kernels.h.

constexpr int kTileLanes = TFXCLASS_TILE_LANES;
constexpr int kTileRows = TFXCLASS_TILE_ROWS;
// Two vectors side by side: their loads are shared by all rows of a tile.
constexpr int kTileColumns = 2 * kTileLanes;

typedef float TileVector __attribute__((vector_size(kTileLanes * 4)));
typedef int32_t TileInts __attribute__((vector_size(kTileLanes * 4)));
typedef double HalfDoubles __attribute__((vector_size(kTileLanes * 4)));
typedef float HalfFloats __attribute__((vector_size(kTileLanes * 2)));

#define TFXCLASS_TILE_INLINE inline __attribute__((always_inline))

TFXCLASS_TILE_INLINE TileVector LoadTile(const float* from) {
  TileVector vector;
  std::memcpy(&vector, from, sizeof(vector));
  return vector;
}

TFXCLASS_TILE_INLINE void StoreTile(TileVector vector, float* to) {
  std::memcpy(to, &vector, sizeof(vector));
}

template <int kRows>
TFXCLASS_TILE_INLINE void MultiplyRows(const TileLeft& a, const float* b,
                                       int64_t k, bool adds, float* c,
                                       int64_t c_row) {
  TileVector sums[kRows][2];
  for (int i = 0; i < kRows; ++i) {
    for (int v = 0; v < 2; ++v) {
      sums[i][v] =
          adds ? LoadTile(c + i * c_row + v * kTileLanes) : TileVector{};
    }
  }
  const float* of_block = a.data;
  for (int64_t first = 0; first < k; first += kPanel, of_block += a.block) {
    const int64_t count = std::min(kPanel, k - first);
    const float* left = of_block;
    for (int64_t j = 0; j < count; ++j, left += a.step, b += kPanel) {
      const TileVector b0 = LoadTile(b), b1 = LoadTile(b + kTileLanes);
      for (int i = 0; i < kRows; ++i) {
        const float x = left[i * a.row];
        sums[i][0] += b0 * x;
        sums[i][1] += b1 * x;
      }
    }
  }
  for (int i = 0; i < kRows; ++i) {
    for (int v = 0; v < 2; ++v) {
      StoreTile(sums[i][v], c + i * c_row + v * kTileLanes);
    }
  }
}

inline void Multiply(const TileLeft& a, const float* b, int64_t m, int64_t k,
                     bool adds, float* c, int64_t c_row) {
  for (int64_t j = 0; j < kPanel; j += kTileColumns) {
    TileLeft rows = a;
    int64_t i = 0;
    for (; i + kTileRows <= m; i += kTileRows) {
      MultiplyRows<kTileRows>(rows, b + j, k, adds, c + i * c_row + j, c_row);
      rows.data += kTileRows * a.row;
    }
    for (; i + 4 <= m; i += 4) {
      MultiplyRows<4>(rows, b + j, k, adds, c + i * c_row + j, c_row);
      rows.data += 4 * a.row;
    }
    for (; i < m; ++i) {
      MultiplyRows<1>(rows, b + j, k, adds, c + i * c_row + j, c_row);
      rows.data += a.row;
    }
  }
}

inline void Affine(float* panel, int64_t count, const float* scale,
                   const float* bias) {
  for (int64_t i = 0; i < count; ++i) {
    const float factor = scale == nullptr ? 1.0f : scale[i];
    const float term = bias == nullptr ? 0.0f : bias[i];
    for (int64_t j = 0; j < kPanel; j += kTileLanes) {
      float* at = panel + i * kPanel + j;
      StoreTile(LoadTile(at) * factor + term, at);
    }
  }
}

inline void ColumnMax(const float* panel, int64_t count, float* top) {
  for (int64_t j = 0; j < kPanel; j += kTileLanes) {
    TileVector best = LoadTile(top + j), second = best;
    int64_t i = 0;
    for (; i + 2 <= count; i += 2) {
      const TileVector a = LoadTile(panel + i * kPanel + j);
      const TileVector b = LoadTile(panel + (i + 1) * kPanel + j);
      best = a > best ? a : best;
      second = b > second ? b : second;
    }
    if (i < count) {
      const TileVector a = LoadTile(panel + i * kPanel + j);
      best = a > best ? a : best;
    }
    StoreTile(second > best ? second : best, top + j);
  }
}

// exp of what is at most 0 (but for rounding), relative error 2e-7: FastExp of
// core/softmax_block.h in vectors; NaN stays. What overflows on the way is far
// below -87, so 0.
TFXCLASS_TILE_INLINE TileVector TileExp(TileVector x) {
  const TileVector zero{};
  // Truncated towards zero: x is negative.
  const TileInts n = __builtin_convertvector(x * 1.44269504f - 0.5f, TileInts);
  const TileVector whole = __builtin_convertvector(n, TileVector);
  // Not to be merged into one product: the first one, of 355/512, is exact.
  const TileVector r =
      TFXCLASS_TILE_FENCE(x + whole * -0.693359375f) + whole * 2.12194440e-4f;
  TileVector p = zero + 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const TileInts bits = (n + 127) << 23;
  TileVector power;
  std::memcpy(&power, &bits, sizeof(power));
  p *= power;
  return x < zero - 87.0f ? zero : p;
}

TFXCLASS_TILE_INLINE void AddDoubles(TileVector part, double* sums) {
  HalfFloats halves[2];
  std::memcpy(halves, &part, sizeof(part));
  for (int h = 0; h < 2; ++h) {
    HalfDoubles sum;
    std::memcpy(&sum, sums + h * kTileLanes / 2, sizeof(sum));
    sum += __builtin_convertvector(halves[h], HalfDoubles);
    std::memcpy(sums + h * kTileLanes / 2, &sum, sizeof(sum));
  }
}

// In float; of more, double sums are made.
constexpr int64_t kSumRows = 16;

inline void Exponentials(float* panel, int64_t count, const float* shift,
                         double* sums) {
  for (int64_t j = 0; j < kPanel; j += kTileLanes) {
    const TileVector top = LoadTile(shift + j);
    for (int64_t first = 0; first < count; first += kSumRows) {
      const int64_t end = std::min(first + kSumRows, count);
      TileVector part{};
      for (int64_t i = first; i < end; ++i) {
        float* at = panel + i * kPanel + j;
        const TileVector e = TileExp(LoadTile(at) - top);
        StoreTile(e, at);
        part += e;
      }
      AddDoubles(part, sums + j);
    }
  }
}

inline void Scale(const float* panel, int64_t count, const float* scale,
                  const float* lift, float* to) {
  for (int64_t i = 0; i < count; ++i, panel += kPanel, to += kPanel) {
    for (int64_t j = 0; j < kPanel; j += kTileLanes) {
      const TileVector factor = LoadTile(scale + j);
      StoreTile(LoadTile(panel + j) * factor - LoadTile(lift + j), to + j);
    }
  }
}

// The first `count` of a vector, as many as it has or fewer; the others are
// -infinity, whose exponential is 0.
TFXCLASS_TILE_INLINE TileVector LoadFirst(const float* from, int64_t count) {
  if (count >= kTileLanes) return LoadTile(from);
  float lanes[kTileLanes];
  std::fill_n(lanes, kTileLanes, -std::numeric_limits<float>::infinity());
  std::copy_n(from, count, lanes);
  return LoadTile(lanes);
}

inline double SumOfExp(const float* logits, int64_t count, float top) {
  double sums[kTileLanes] = {};
  for (int64_t first = 0; first < count; first += kSumRows * kTileLanes) {
    const int64_t end = std::min(first + kSumRows * kTileLanes, count);
    TileVector part{};
    for (int64_t c = first; c < end; c += kTileLanes) {
      part += TileExp(LoadFirst(logits + c, end - c) - top);
    }
    AddDoubles(part, sums);
  }
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

inline void SoftmaxRow(const float* logits, int64_t count, float logsumexp,
                       float upstream, float* grad) {
  const TileVector zero{};
  for (int64_t c = 0; c < count; c += kTileLanes) {
    const TileVector x = LoadFirst(logits + c, count - c) - logsumexp;
    // NaN stays.
    const TileVector values = upstream * TileExp(x > zero ? zero : x);
    if (count - c >= kTileLanes) {
      StoreTile(values, grad + c);
    } else {
      std::memcpy(grad + c, &values, (count - c) * sizeof(float));
    }
  }
}

#undef TFXCLASS_TILE_INLINE

inline constexpr TileKernels kKernels = {
    TFXCLASS_TILE_NAME, Multiply, Affine,   ColumnMax,
    Exponentials,       Scale,    SumOfExp, SoftmaxRow};
