#include "ops/cpu/linear/byte_dots.h"

#include <cpuid.h>
#include <hwy/base.h>
#include <immintrin.h>

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <limits>

#include "base/threads.h"
#include "ops/cpu/linear/row_blocks.h"
#include "ops/cpu/linear/x86/byte_kernel.h"
#include "ops/cpu/rows.h"

HWY_PUSH_ATTRIBUTES("avx2,fma")
namespace winnow::ops::cpu {
namespace {

constexpr std::size_t kGroup = QuantizedWeight::kGroup;
constexpr float kMostCode = 127.0F;

float largest(__m256 values) {
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(values), _mm256_extractf128_ps(values, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

std::int32_t sum(__m256i values) {
  const __m128i four =
      _mm_add_epi32(_mm256_castsi256_si128(values), _mm256_extracti128_si256(values, 1));
  const __m128i two = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
  return _mm_cvtsi128_si32(two) + _mm_extract_epi32(two, 1);
}

struct GroupOfInputs {
  float scale;       // 0 for values that are negligible; NaN if any value is NaN or infinite
  std::int32_t sum;  // of the codes
};

/// Writes the codes of a group.
GroupOfInputs quantize_inputs(const float* values, std::int8_t* codes) {
  constexpr std::size_t kVectors = kGroup / 8;
  constexpr float kNothing = 1e-30F;  // its inverse could be infinite
  __m256 x[kVectors];
  __m256 most = _mm256_setzero_ps();
  __m256 zeros = _mm256_setzero_ps();  // NaN if a value is not finite
  for (std::size_t v = 0; v < kVectors; ++v) {
    x[v] = _mm256_loadu_ps(values + 8 * v);
    most = _mm256_max_ps(most, _mm256_andnot_ps(_mm256_set1_ps(-0.0F), x[v]));
    zeros = _mm256_fmadd_ps(x[v], _mm256_setzero_ps(), zeros);
  }
  if (_mm256_movemask_ps(_mm256_cmp_ps(zeros, zeros, _CMP_UNORD_Q)) != 0) {
    std::fill_n(codes, kGroup, std::int8_t{0});
    return {std::numeric_limits<float>::quiet_NaN(), 0};
  }
  const float peak = largest(most);
  const __m256 inverse = _mm256_set1_ps(peak < kNothing ? 0.0F : kMostCode / peak);
  __m256i integers[kVectors];
  __m256i total = _mm256_setzero_si256();
  for (std::size_t v = 0; v < kVectors; ++v) {
    integers[v] = _mm256_cvtps_epi32(_mm256_mul_ps(x[v], inverse));
    total = _mm256_add_epi32(total, integers[v]);
  }
  const __m256i words[] = {_mm256_packs_epi32(integers[0], integers[1]),
                           _mm256_packs_epi32(integers[2], integers[3])};
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);  // packing mixes the halves
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes),
                      _mm256_permutevar8x32_epi32(_mm256_packs_epi16(words[0], words[1]), order));
  return {peak < kNothing ? 0.0F : peak / kMostCode, sum(total)};
}

ByteInputs in_bytes(Workspace& workspace, Matrix<const float> x, int offset) {
  const std::size_t groups = x.cols / kGroup;
  const auto codes = workspace.take<std::int8_t>(x.rows * x.cols);
  const auto scales = workspace.take<float>(x.rows * groups);
  const auto corrections = workspace.take<std::int32_t>(x.rows * groups);
  for_rows(x.rows, x.cols, [&](std::size_t m) {
    for (std::size_t g = 0; g < groups; ++g) {
      const std::size_t at = m * groups + g;
      const auto group = quantize_inputs(x.row(m).data() + g * kGroup, &codes[at * kGroup]);
      scales[at] = group.scale;
      corrections[at] = -offset * group.sum;
    }
  });
  return {codes.data(), scales.data(), corrections.data(), x.rows, groups};
}

/// A block of weight rows with all inputs.
void multiply_block(const ByteKernel& kernel, const LinearTarget& target, const ByteInputs& x,
                    std::size_t begin, const ByteWeights& weights) {
  const auto count = std::min(kernel.lanes, static_cast<std::size_t>(target.weight->rows) - begin);
  alignas(64) float bias[kMostByteLanes] = {};
  if (target.bias != nullptr) {
    std::copy_n(target.bias + begin, count, bias);
  }
  kernel.pack(*target.weight, begin, weights);
  for (std::size_t m = 0; m < x.rows; m += kernel.inputs) {
    const ByteInputs inputs = x.slice(m, std::min(m + kernel.inputs, x.rows));
    kernel.tile(weights, inputs, bias,
                {&target.out.row(m)[begin], inputs.rows, count, target.out.stride});
  }
}

template <std::size_t kLanes>
void multiply(const ByteKernel& kernel, Workspace& workspace, std::span<const LinearTarget> targets,
              const ByteInputs& x) {
  const auto threads = static_cast<std::size_t>(thread_count());
  const std::size_t scales = kLanes * x.groups;
  const std::size_t codes = scales * kGroup;
  const auto all_codes = workspace.take<std::uint8_t>(threads * codes);
  const auto all_scales = workspace.take<float>(threads * scales);
  for_weight_rows<kLanes>(
      targets, [&](const LinearTarget& target, std::size_t begin, std::size_t end, int thread) {
        const auto own = static_cast<std::size_t>(thread);
        const ByteWeights weights{&all_codes[own * codes], &all_scales[own * scales]};
        for (std::size_t n = begin; n < end; n += kLanes) {
          multiply_block(kernel, target, x, n, weights);
        }
      });
}

}  // namespace
}  // namespace winnow::ops::cpu
HWY_POP_ATTRIBUTES

namespace winnow::ops::cpu {

bool has_avx_vnni() {
  constexpr unsigned kAvxVnni = 1U << 4U;
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & kAvxVnni) != 0;
}

bool has_avx512_vnni() {
  return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl");
}

bool has_byte_dots() {
  static const bool has = has_avx512_vnni() || has_avx_vnni();
  return has;
}

void gemm_byte_dots(Workspace& workspace, std::span<const LinearTarget> targets,
                    Matrix<const float> x) {
  assert(has_byte_dots());
  const WeightFormat format = targets.front().weight->format;
  assert(is_quantized(format));
  assert(std::ranges::all_of(
      targets, [=](const LinearTarget& target) { return target.weight->format == format; }));
  const ByteInputs inputs = in_bytes(workspace, x, weight_offset(format));
  has_avx512_vnni() ? multiply<16>(kAvx512ByteKernel, workspace, targets, inputs)
                    : multiply<8>(kAvxByteKernel, workspace, targets, inputs);
}

}  // namespace winnow::ops::cpu
