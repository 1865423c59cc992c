// How the tokens of a step's rows are chosen; some tokens may be forbidden.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/cuda/device.h"
#include "ops/cuda/sampling/sampling.h"

namespace winnow::model::cuda {

struct RowChoice {
  ops::cuda::SampledRow row;                // TokenMasks sets its `allowed`
  const ops::AllowTokens* allow = nullptr;  // optional
};

inline bool any_restricted(std::span<const RowChoice> rows) {
  return std::ranges::any_of(rows, [](const RowChoice& row) { return row.allow != nullptr; });
}

/// Copies the masks of allowed tokens of a step's rows to the device.
class TokenMasks {
 public:
  /// For up to `rows` rows at a time.
  TokenMasks(std::size_t rows, std::size_t vocab);

  /// Writes the rows for the sampling kernel; their masks are stored one after another.
  void place(std::span<const RowChoice> rows, std::span<ops::cuda::SampledRow> placed) const;
  /// Computes and copies the masks of restricted rows, while the work in `stream` goes on; later
  /// work in `stream` sees them. The kernel that read the last masks must be complete.
  void send(std::span<const RowChoice> rows, const winnow::cuda::Stream& stream);

 private:
  std::size_t words_;                                 // of a row
  winnow::cuda::PinnedBuffer<std::uint64_t> host_;    // [rows, words]
  winnow::cuda::DeviceBuffer<std::uint64_t> device_;  // [rows, words]
  winnow::cuda::Stream copies_;
  winnow::cuda::Event copied_;
};

}  // namespace winnow::model::cuda
