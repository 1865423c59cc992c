#include "ops/causal_conv.h"

#include <algorithm>
#include <cassert>
#include <vector>

#include "base/threads.h"

namespace winnow::ops {
namespace {

constexpr std::size_t kChannelBlock = 64;  // channels per task

// Row t of tail and text together, from channel `first` on; a negative t is in the tail.
const float* row_at(Matrix<const float> x, std::span<const float> tail, std::ptrdiff_t t,
                    std::size_t first) {
  if (t >= 0) {
    return x.row(static_cast<std::size_t>(t)).data() + first;
  }
  const auto rows = static_cast<std::ptrdiff_t>(tail.size() / x.cols);
  return tail.data() + static_cast<std::size_t>(rows + t) * x.cols + first;
}

void convolve(Matrix<float> out, Matrix<const float> x, std::span<const float> taps,
              std::span<const float> bias, std::span<const float> tail, std::size_t first,
              std::size_t last) {
  const std::size_t count = taps.size() / x.cols;
  std::vector<float> by_tap(count * kChannelBlock);  // transposed: [tap][channel], like rows of x
  for (std::size_t c = first; c < last; ++c) {
    for (std::size_t k = 0; k < count; ++k) {
      by_tap[k * kChannelBlock + c - first] = taps[c * count + k];
    }
  }
  for (std::size_t t = 0; t < x.rows; ++t) {
    float* sums = out.row(t).data() + first;
    if (bias.empty()) {
      std::fill_n(sums, last - first, 0.0F);
    } else {
      std::copy_n(bias.data() + first, last - first, sums);
    }
    for (std::size_t k = 0; k < count; ++k) {
      const auto at = static_cast<std::ptrdiff_t>(t + k) - static_cast<std::ptrdiff_t>(count - 1);
      const float* source = row_at(x, tail, at, first);
      for (std::size_t c = 0; c < last - first; ++c) {
        sums[c] += by_tap[k * kChannelBlock + c] * source[c];
      }
    }
  }
}

}  // namespace

void causal_conv(Matrix<float> out, Matrix<const float> x, std::span<const float> taps,
                 std::span<const float> bias, std::span<float> tail) {
  assert(out.rows == x.rows && out.cols == x.cols && taps.size() % x.cols == 0);
  assert(tail.size() == taps.size() - x.cols);
  parallel_each((x.cols + kChannelBlock - 1) / kChannelBlock, [&](std::size_t block, int) {
    const std::size_t first = block * kChannelBlock;
    convolve(out, x, taps, bias, tail, first, std::min(first + kChannelBlock, x.cols));
  });
  const std::size_t kept = tail.size() / x.cols;
  const std::size_t from_tail = kept > x.rows ? kept - x.rows : 0;
  std::copy_n(tail.end() - static_cast<std::ptrdiff_t>(from_tail * x.cols), from_tail * x.cols,
              tail.begin());
  for (std::size_t i = from_tail; i < kept; ++i) {
    std::ranges::copy(x.row(x.rows - kept + i),
                      tail.begin() + static_cast<std::ptrdiff_t>(i * x.cols));
  }
}

void causal_conv_backward(Matrix<float> dx, std::span<float> dtaps, Matrix<const float> dout,
                          Matrix<const float> x, std::span<const float> taps) {
  assert(dx.rows == x.rows && dx.cols == x.cols && dout.rows == x.rows && dout.cols == x.cols);
  assert(dtaps.empty() || dtaps.size() == taps.size());
  const std::size_t count = taps.size() / x.cols;
  parallel_ranges(x.cols, [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t t = 0; t < x.rows; ++t) {
      const auto gradient = dout.row(t);
      for (std::size_t k = 0; k < count && k <= t; ++k) {
        const auto source = x.row(t - k);
        const auto target = dx.row(t - k);
        for (std::size_t c = begin; c < end; ++c) {
          const std::size_t tap = c * count + count - 1 - k;
          target[c] += taps[tap] * gradient[c];
          if (!dtaps.empty()) {
            dtaps[tap] += source[c] * gradient[c];
          }
        }
      }
    }
  });
}

}  // namespace winnow::ops
