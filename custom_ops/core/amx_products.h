// Products of numbers rounded to bfloat16, by the tiles of Intel's AMX: sums in
// float, at five to eight times the rate of AVX-512's products in float.
//
// An instruction multiplies [16, 32] numbers by [32, 16]. The right side lies
// in pairs: [16, 16, 2] holds (2k, j) and (2k + 1, j) side by side. Numbers
// below 1.2e-38 count as 0.
#ifndef TFXCLASS_CORE_AMX_PRODUCTS_H_
#define TFXCLASS_CORE_AMX_PRODUCTS_H_

#if defined(__x86_64__) && defined(__linux__) && !defined(__clang__) && \
    __GNUC__ >= 11
#define TFXCLASS_HAS_AMX_PRODUCTS 1

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "core/bf16.h"
#include "core/query_panels.h"

namespace tfxclass {

// Whether this process may use AMX; Linux is asked once.
//
// The permission is one for the whole process and is never given back:
// alternate stacks of signals must be larger from then on (12 kB; `sigaltstack`
// refuses smaller ones). Where a thread has a smaller one already, Linux
// refuses, and products are float32. So it is asked for only when products are
// wanted.
inline bool HasAmx() {
  static const bool has = [] {
    constexpr long kRequestPermission = 0x1023, kTileData = 18;
    return __builtin_cpu_supports("amx-bf16") &&
           __builtin_cpu_supports("avx512bf16") &&
           __builtin_cpu_supports("avx512bw") &&
           syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }();
  return has;
}

#pragma GCC push_options
#pragma GCC diagnostic push
// GCC 12 warns of its own intrinsics, and of vectors that lambdas return.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wpsabi"
#pragma GCC target("amx-tile,amx-bf16,avx512f,avx512bw,avx512vl,avx512bf16")

namespace amx {

// Rows and numbers of a step along the sum.
constexpr int64_t kTileRows = 16, kStep = 32;

inline int64_t Steps(int64_t size) {
  return size / kStep + (size % kStep != 0);
}

// Columns [0, dim) of a row, to a multiple of kStep padded with zeros.
inline void Narrow(const float* from, int64_t size, Bf16* to) {
  for (int64_t i = 0; i < size; i += kStep) {
    const int64_t left = size - i;
    const uint32_t mask = left >= kStep ? ~0u : (1u << left) - 1;
    const __m512 a = _mm512_maskz_loadu_ps(mask & 0xffff, from + i);
    const __m512 b = _mm512_maskz_loadu_ps(mask >> 16, from + i + 16);
    const __m512bh narrow = _mm512_cvtne2ps_pbh(b, a);
    std::memcpy(to + i, &narrow, sizeof(narrow));
  }
}

// Rows a and b of kPanel numbers as pairs [kPanel, 2].
inline void Pairs(const float* a, const float* b, Bf16* to) {
  for (int64_t j = 0; j < kPanel; j += 16) {
    // Of each 32 bits the lower half is a's, the upper one b's.
    const __m512i low = _mm512_cvtepu16_epi32(
        (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(a + j)));
    const __m512i high = _mm512_cvtepu16_epi32(
        (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(b + j)));
    const __m512i both = _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
    std::memcpy(to + 2 * j, &both, sizeof(both));
  }
}

// columns [16, stride] = the transpose of 32 rows [32, row], of 16 numbers
// each.
inline void TransposeRows(const Bf16* rows, int64_t row, Bf16* columns,
                          int64_t stride) {
  // A word holds the numbers of two rows, so that words are transposed.
  __m512i r[16], t[16];
  for (int i = 0; i < 16; ++i, rows += 2 * row) {
    const auto load = [](const Bf16* from) {
      return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)from));
    };
    r[i] = _mm512_or_si512(load(rows), _mm512_slli_epi32(load(rows + row), 16));
  }
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    for (int j = 0; j < 2; ++j) {
      r[i + 2 * j] = _mm512_unpacklo_epi64(t[i + j], t[i + j + 2]);
      r[i + 2 * j + 1] = _mm512_unpackhi_epi64(t[i + j], t[i + j + 2]);
    }
  }
  // Now lane l of r[i + j] has column 4 l + j of the words i to i + 3.
  for (int j = 0; j < 4; ++j) {
    constexpr int kEven = 0x88, kOdd = 0xdd;
    const __m512i halves[2][2] = {
        {_mm512_shuffle_i32x4(r[j], r[4 + j], kEven),
         _mm512_shuffle_i32x4(r[8 + j], r[12 + j], kEven)},
        {_mm512_shuffle_i32x4(r[j], r[4 + j], kOdd),
         _mm512_shuffle_i32x4(r[8 + j], r[12 + j], kOdd)}};
    for (int l = 0; l < 2; ++l) {
      const __m512i* const of = halves[l];
      _mm512_storeu_si512(columns + (4 * l + j) * stride,
                          _mm512_shuffle_i32x4(of[0], of[1], kEven));
      _mm512_storeu_si512(columns + (4 * l + 8 + j) * stride,
                          _mm512_shuffle_i32x4(of[0], of[1], kOdd));
    }
  }
}

// Sets up the tiles of this thread for as long as it lives.
class TileScope {
 public:
  TileScope() {
    Config config;
    asm volatile("ldtilecfg %0" ::"m"(config));
  }
  ~TileScope() { asm volatile("tilerelease" ::); }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;

 private:
  struct alignas(64) Config {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  };
};

// The left side of a product: a(i, k) at
// data[i * row + k % kStep + k / kStep * block]. Whole tiles can be read.
struct Left {
  const Bf16* data;
  int64_t row, block;
};

// c [16 * kTiles, kPanel] (+)= a b for `steps` steps.
template <int kTiles>
inline void MultiplyTiles(const Left& a, const Bf16* b, int64_t steps,
                          bool adds, float* c, int64_t c_row) {
  // The intrinsics do not tell the compiler which memory they read.
  asm volatile("" ::: "memory");
  const int64_t c_bytes = c_row * sizeof(float);
  const int64_t a_bytes = a.row * sizeof(Bf16);
  constexpr int64_t kPairBytes = 2 * kPanel * sizeof(Bf16);
  float* const lower = c + kTileRows * c_row;
  if (adds) {
    _tile_loadd(0, c, c_bytes);
    _tile_loadd(1, c + 16, c_bytes);
    if constexpr (kTiles == 2) {
      _tile_loadd(2, lower, c_bytes);
      _tile_loadd(3, lower + 16, c_bytes);
    }
  } else {
    _tile_zero(0);
    _tile_zero(1);
    if constexpr (kTiles == 2) {
      _tile_zero(2);
      _tile_zero(3);
    }
  }
  const Bf16* left = a.data;
  for (int64_t s = 0; s < steps; ++s, left += a.block, b += kStep * kPanel) {
    _tile_loadd(6, b, kPairBytes);
    _tile_loadd(7, b + 2 * 16, kPairBytes);
    _tile_loadd(4, left, a_bytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if constexpr (kTiles == 2) {
      _tile_loadd(5, left + kTileRows * a.row, a_bytes);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, c, c_bytes);
  _tile_stored(1, c + 16, c_bytes);
  if constexpr (kTiles == 2) {
    _tile_stored(2, lower, c_bytes);
    _tile_stored(3, lower + 16, c_bytes);
  }
}

// c(i, j) (+)= sum_k a(i, k) b(k, j) for i < m, j < kPanel; b is [steps,
// kStep / 2, kPanel, 2], c(i, j) lies at c[i * c_row + j]. In a TileScope.
inline void Multiply(const Left& a, const Bf16* b, int64_t m, int64_t steps,
                     bool adds, float* c, int64_t c_row) {
  Left rows = a;
  int64_t i = 0;
  for (; i + 2 * kTileRows <= m; i += 2 * kTileRows) {
    MultiplyTiles<2>(rows, b, steps, adds, c + i * c_row, c_row);
    rows.data += 2 * kTileRows * a.row;
  }
  for (; i < m; i += kTileRows, rows.data += kTileRows * a.row) {
    const int64_t count = m - i < kTileRows ? m - i : kTileRows;
    float* const to = c + i * c_row;
    if (count == kTileRows) {
      MultiplyTiles<1>(rows, b, steps, adds, to, c_row);
      continue;
    }
    float whole[kTileRows * kPanel] = {};
    for (int64_t r = 0; adds && r < count; ++r) {
      std::memcpy(whole + r * kPanel, to + r * c_row, kPanel * sizeof(float));
    }
    MultiplyTiles<1>(rows, b, steps, adds, whole, kPanel);
    for (int64_t r = 0; r < count; ++r) {
      std::memcpy(to + r * c_row, whole + r * kPanel, kPanel * sizeof(float));
    }
  }
}

}  // namespace amx

// What follows is compiled for any processor: library code that it brings must
// run there, since the linker keeps one copy of each function.
#pragma GCC diagnostic pop
#pragma GCC pop_options

// The products of FloatPanels, of numbers rounded to bfloat16. Needs HasAmx().
class AmxPanels : public QueryPanels {
 public:
  AmxPanels(const float* queries, int64_t batch, int64_t dim,
            bool has_gradient_side)
      : QueryPanels(batch, dim), steps_(amx::Steps(dim)) {
    of_logits_.resize(panels() * steps_ * kBlock);
    const auto pair = [](int64_t k, int64_t column) {
      return (k / 2 * kPanel + column) * 2 + k % 2;
    };
    for (int64_t b = 0; b < batch; ++b) {
      Bf16* const to = of_logits_.data() + b / kPanel * steps_ * kBlock;
      for (int64_t d = 0; d < dim; ++d) {
        to[pair(d, b % kPanel)] = ToBf16(queries[b * dim + d]);
      }
    }
    if (!has_gradient_side) return;
    of_gradient_.resize(PanelsOf(dim) * panels() * kBlock);
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t d = 0; d < dim; ++d) {
        Bf16* const to = of_gradient_.data() + d / kPanel * panels() * kBlock;
        to[pair(b, d % kPanel)] = ToBf16(queries[b * dim + d]);
      }
    }
  }

  std::unique_ptr<ChunkProducts> Products(int64_t most) const override {
    return std::make_unique<Chunk>(*this, most);
  }

 private:
  // Numbers of a step along the sum, of one panel.
  static constexpr int64_t kBlock = amx::kStep * kPanel;

  class Chunk : public ChunkProducts {
   public:
    Chunk(const AmxPanels& queries, int64_t most)
        : queries_(queries),
          dim_(queries.dim()),
          dim_steps_(queries.steps_),
          padded_(CeilOf(most, amx::kStep) * amx::kStep),
          rows_(padded_ * dim_steps_ * amx::kStep) {}

    void Load(const float* rows, int64_t count) override {
      count_ = count;
      has_columns_ = false;
      const int64_t width = dim_steps_ * amx::kStep;
      for (int64_t i = 0; i < count; ++i) {
        amx::Narrow(rows + i * dim_, dim_, rows_.data() + i * width);
      }
      // Zeros stand for the rows that the last step lacks.
      const int64_t whole = amx::Steps(count) * amx::kStep;
      std::fill(rows_.begin() + count * width, rows_.begin() + whole * width,
                Bf16{0});
    }

    void Logits(int64_t panel, float* logits) override {
      const amx::TileScope tiles;
      const Bf16* const of_panel =
          queries_.of_logits_.data() + panel * dim_steps_ * kBlock;
      amx::Multiply({rows_.data(), dim_steps_ * amx::kStep, amx::kStep},
                    of_panel, count_, dim_steps_, false, logits, kPanel);
    }

    void AddRows(const float* weights, float* sums) override {
      const int64_t steps = amx::Steps(count_);
      if (!has_columns_) TransposeRows();
      FindPairs(weights, steps);
      const amx::TileScope tiles;
      amx::Multiply({columns_.data(), padded_, amx::kStep}, pairs_.data(), dim_,
                    steps, true, sums, kPanel);
    }

    void RowGradients(const float* numbers, int64_t first, int64_t panels,
                      bool adds, float* grads) override {
      // Each panel has whole tiles of rows.
      const int64_t block = padded_ * kPanel;
      narrow_.resize(kGroupPanels * block);
      for (int64_t p = 0; p < panels; ++p) {
        for (int64_t i = 0; i < count_; ++i) {
          amx::Narrow(numbers + (p * count_ + i) * kPanel, kPanel,
                      narrow_.data() + p * block + i * kPanel);
        }
      }
      const amx::TileScope tiles;
      const int64_t dim_panels = PanelsOf(dim_);
      for (int64_t d = 0; d < dim_panels; ++d) {
        const Bf16* const of_panel = queries_.of_gradient_.data() +
                                     (d * queries_.panels() + first) * kBlock;
        amx::Multiply({narrow_.data(), kPanel, block}, of_panel, count_, panels,
                      adds, grads + d * kPanel, dim_panels * kPanel);
      }
    }

   private:
    void TransposeRows() {
      has_columns_ = true;
      const int64_t width = dim_steps_ * amx::kStep;
      columns_.resize(width * padded_);
      for (int64_t i = 0; i < count_; i += amx::kStep) {
        for (int64_t d = 0; d < width; d += amx::kTileRows) {
          amx::TransposeRows(rows_.data() + i * width + d, width,
                             columns_.data() + d * padded_ + i, padded_);
        }
      }
    }

    void FindPairs(const float* weights, int64_t steps) {
      static constexpr float kZeros[kPanel] = {};
      pairs_.resize(steps * kBlock);
      for (int64_t i = 0; i < steps * amx::kStep; i += 2) {
        const float* const a = i < count_ ? weights + i * kPanel : kZeros;
        const float* const b =
            i + 1 < count_ ? weights + (i + 1) * kPanel : kZeros;
        amx::Pairs(a, b, pairs_.data() + i * kPanel);
      }
    }

    const AmxPanels& queries_;
    const int64_t dim_, dim_steps_;
    // Rows of the longest chunk, to whole steps.
    const int64_t padded_;
    int64_t count_ = 0;
    bool has_columns_ = false;
    // [padded_, dim], [dim, padded_], and a panel's weights as pairs.
    std::vector<Bf16> rows_, columns_, pairs_, narrow_;
  };

  const int64_t steps_;
  // [panels, steps_, kStep / 2, kPanel, 2], and for each panel of dimensions
  // [panels, kStep / 2, kPanel, 2].
  std::vector<Bf16> of_logits_, of_gradient_;
};

}  // namespace tfxclass

#endif  // x86-64, Linux, g++

#endif  // TFXCLASS_CORE_AMX_PRODUCTS_H_
