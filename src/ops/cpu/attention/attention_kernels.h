// The SIMD inner loops of attention, dispatched at run time to the best instruction set.
#pragma once

#include <cstddef>
#include <span>

#include "ops/kv_page.h"

namespace winnow::ops::cpu {

/// scores[r * score_stride + j] = sum_d query[r * query_stride + d] * code(key j)[d] for the
/// kPageEntries entries j of one page. Uses raw codes, without scales. Prefetches `upcoming` at the
/// same time.
void score_page(const PageLayout& layout, const std::byte* page, const float* query,
                std::size_t query_stride, std::size_t rows, float* scores, std::size_t score_stride,
                std::span<const std::byte> upcoming);

/// out[r * out_stride + d] += sum_{j < entries} weights[r * weight_stride + j] * code(value j)[d].
/// Prefetches the fraction entries / kPageEntries of `upcoming` at the same time.
void accumulate_page(const PageLayout& layout, const std::byte* page, int entries,
                     const float* weights, std::size_t weight_stride, std::size_t rows, float* out,
                     std::size_t out_stride, std::span<const std::byte> upcoming);

/// The factor that code() of the two functions above needs besides the scales: 256 for fp8, else 1.
float code_unit(const PageLayout& layout);

/// The whole page in float, scales applied: keys [head_dim][kPageEntries], values
/// [kPageEntries][head_dim].
void dequantize_page(const PageLayout& layout, const std::byte* page, float* keys, float* values);

/// x[i] *= factors[i] * unit.
void multiply(std::span<float> x, const float* factors, float unit);

float max_of(std::span<const float> x);

/// x[i] = exp(x[i] - shift); returns the sum.
float exp_shifted(std::span<float> x, float shift);

/// x[i] *= factor.
void scale_by(std::span<float> x, float factor);

}  // namespace winnow::ops::cpu
