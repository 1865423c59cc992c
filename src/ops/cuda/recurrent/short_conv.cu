// A thread processes a channel and a few rows of a sequence. The cost is reading the projections
// once; the few rows that several threads read come from the cache.
#include "base/cuda/launch.cuh"
#include "ops/cuda/recurrent/short_conv.h"

namespace winnow::ops::cuda {
namespace {

constexpr int kConvThreads = 128;
// Per block: the first block of a sequence has all rows that depend on the state.
constexpr int kConvRows = kMostTaps - 1;

// The convolution's input in a channel at row `t` of a text. Rows with negative t are the `kept`
// rows before it, whose inputs are in `tail`.
struct GatedInput {
  const float* projected;
  const float* tail;
  std::size_t channels;
  int channel;
  int kept;

  __device__ float at(int t) const {
    if (t < 0) {
      return tail[(kept + t) * channels + channel];
    }
    const float* row = projected + t * 2 * channels;
    return row[channel] * row[channels + channel];
  }
};

__global__ void __launch_bounds__(kConvThreads)
    short_conv_kernel(ShortConv conv, RecurrentRows rows) {
  winnow::cuda::wait_for_predecessor();
  const int slot = rows.slots[blockIdx.z];
  const int channel = blockIdx.x * kConvThreads + threadIdx.x;
  if (slot < 0 || channel >= conv.channels) {
    return;
  }
  const auto [first, count] = rows.range(blockIdx.z);
  const int begin = blockIdx.y * kConvRows;
  const int end = min(count, begin + kConvRows);
  const std::size_t channels = conv.channels;
  float* tail = rows.state(slot);
  const GatedInput input{conv.projected + first * 2 * channels, tail, channels, channel,
                         conv.tap_count - 1};
  for (int t = begin; t < end; ++t) {
    float sum = 0.0F;
    for (int tap = 0; tap < conv.tap_count; ++tap) {
      sum += conv.taps[tap * channels + channel] * input.at(t + tap - input.kept);
    }
    const std::size_t place = (first + t) * channels + channel;
    conv.out[place] = to_bf16(conv.gates[place] * sum);
  }
  if (begin == 0 && end > 0) {
    for (int row = 0; row < input.kept; ++row) {  // reads no row that it has already overwritten
      tail[row * channels + channel] = input.at(count - input.kept + row);
    }
  }
}

}  // namespace

void short_conv(const ShortConv& conv, const RecurrentRows& rows, cudaStream_t stream) {
  check_taps(conv.tap_count);
  if (rows.sequences > 0) {
    const dim3 grid((conv.channels + kConvThreads - 1) / kConvThreads,
                    (rows.longest + kConvRows - 1) / kConvRows, rows.sequences);
    winnow::cuda::launch(short_conv_kernel, grid, kConvThreads, 0, stream, true, conv, rows);
  }
}

}  // namespace winnow::ops::cuda
