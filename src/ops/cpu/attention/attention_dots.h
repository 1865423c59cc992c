// The inner loops of decode attention on CPUs with bf16 dot product instructions.
#pragma once

#include <cstddef>
#include <span>

#include "base/dtype.h"
#include "ops/kv_page.h"

namespace winnow::ops::cpu {

/// Whether the functions below support pages of this layout on this CPU: codes that bf16 represents
/// exactly (bf16, fp8, int8), head_dim a multiple of 32, has_bf16_dots().
bool attends_in_dots(const PageLayout& layout);

/// score_page() with queries in bf16.
void score_page_in_dots(const PageLayout& layout, const std::byte* page, const bf16* query,
                        std::size_t query_stride, std::size_t rows, float* scores,
                        std::size_t score_stride, std::span<const std::byte> upcoming);

/// accumulate_page() with weights in bf16. After an odd number of weights, one more is read: it may
/// be any finite number.
void accumulate_page_in_dots(const PageLayout& layout, const std::byte* page, int entries,
                             const bf16* weights, std::size_t weight_stride, std::size_t rows,
                             float* out, std::size_t out_stride,
                             std::span<const std::byte> upcoming);

}  // namespace winnow::ops::cpu
