// The routes of tokens to experts in device memory. Includes no CUDA: builds without it plan
// memory.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace winnow::ops::cuda {

/// The routes of some tokens, as kernels see them. A pair is a token and one of its experts,
/// numbered token * active + rank.
struct RoutesView {
  std::int32_t* experts = nullptr;  // [rows * active]
  float* weights = nullptr;         // [rows * active]
  std::int32_t* pairs = nullptr;    // [rows * active], ordered by expert, then by token
  std::int32_t* places = nullptr;   // [rows * active]: each pair's index in that order
  std::int32_t* begins = nullptr;   // [count + 1]: the first place of each expert
  // Scratch for products of experts with many tokens each, which Hopper multiplies in groups of
  // kGroupTokens:
  std::int32_t* groups = nullptr;    // [count + 1]: the first group of each expert
  bf16* packed = nullptr;            // the groups' tokens (experts_pack.h); null: not needed
  bf16* packed_activated = nullptr;  // the same tokens after gates and ups
  // Scratch for norm_and_route():
  float* logits = nullptr;           // [kMostRoutedRows, count]
  std::uint32_t* arrived = nullptr;  // [kMostRoutedRows + 1], zeros between calls
};

}  // namespace winnow::ops::cuda
