#include <algorithm>

#include "ops/cuda/experts/experts.h"
#include "ops/cuda/experts/packed_columns.h"
#include "ops/cuda/linear/small_batch_gemm.h"

namespace winnow::ops::cuda {

void RoutesMemory::reserve(const Router& router, int rows, int hidden, int inner) {
  const std::size_t pairs =
      static_cast<std::size_t>(rows) * static_cast<std::size_t>(router.active);
  experts_.ensure(pairs);
  weights_.ensure(pairs);
  pairs_.ensure(pairs);
  places_.ensure(pairs);
  begins_.ensure(static_cast<std::size_t>(router.count) + 1);
  groups_.ensure(static_cast<std::size_t>(router.count) + 1);
  if (tokens_each(router, rows) >= kManyTokens && has_small_batch_gemm()) {
    const std::size_t groups = pairs / kGroupTokens + static_cast<std::size_t>(router.count);
    const auto packed = [groups](int cols) {
      return groups * kGroupTokens * static_cast<std::size_t>(packed_columns(cols));
    };
    packed_.ensure(packed(hidden));
    packed_activated_.ensure(packed(inner));
  }
  logits_.ensure(kMostRoutedRows * static_cast<std::size_t>(router.count));
  if (arrived_.size() == 0) {
    arrived_.ensure(kMostRoutedRows + 1);
    arrived_.fill(0);
  }
}

std::size_t norm_and_route_bytes(const Router& router, int cols) {
  const auto most = static_cast<std::size_t>(std::max(
      {router.count, kMostRoutedRows * router.active, (cols + 1) / 2}));  // two columns per word
  return most * sizeof(std::int32_t);
}

bool takes_norm_and_route(const Router& router, int cols) {
  constexpr std::size_t kGivenUnasked = 47 << 10;  // less than 48 KiB: blocks' sums take some
  return norm_and_route_bytes(router, cols) <= kGivenUnasked;
}

RoutesView RoutesMemory::view() const {
  return {.experts = experts_.data(),
          .weights = weights_.data(),
          .pairs = pairs_.data(),
          .places = places_.data(),
          .begins = begins_.data(),
          .groups = groups_.data(),
          .packed = packed_.data(),
          .packed_activated = packed_activated_.data(),
          .logits = logits_.data(),
          .arrived = arrived_.data()};
}

}  // namespace winnow::ops::cuda
