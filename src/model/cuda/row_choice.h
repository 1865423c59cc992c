// How the tokens of a step's rows are chosen, of which some may be forbidden.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/cuda/device.h"
#include "ops/cuda/sampling/sampling.h"

namespace winnow::model::cuda {

struct RowChoice {
  ops::cuda::SampledRow row;                // `allowed` is TokenMasks' business
  const ops::AllowTokens* allow = nullptr;  // optional
};

inline bool any_restricted(std::span<const RowChoice> rows) {
  return std::ranges::any_of(rows, [](const RowChoice& row) { return row.allow != nullptr; });
}

/// Masks of the tokens that a step's rows may choose, on their way to the device.
class TokenMasks {
 public:
  /// For up to `rows` rows at a time.
  TokenMasks(std::size_t rows, std::size_t vocab);

  /// Writes the rows as the sampling kernel reads them: masks lie behind each other.
  void place(std::span<const RowChoice> rows, std::span<ops::cuda::SampledRow> placed) const;
  /// Asks for the masks of rows that are restricted. What comes next in `stream` sees them, what it
  /// does already goes on meanwhile. The kernel that read the ones before must be complete.
  void send(std::span<const RowChoice> rows, const winnow::cuda::Stream& stream);

 private:
  std::size_t words_;                                 // of a row
  winnow::cuda::PinnedBuffer<std::uint64_t> host_;    // [rows, words]
  winnow::cuda::DeviceBuffer<std::uint64_t> device_;  // [rows, words]
  winnow::cuda::Stream copies_;
  winnow::cuda::Event copied_;
};

}  // namespace winnow::model::cuda
