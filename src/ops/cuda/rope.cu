#include "base/cuda/device.h"
#include "ops/cuda/rope.h"

namespace winnow::ops::cuda {
namespace {

__global__ void angles_kernel(float2* angles, const float* frequencies,
                              const std::int32_t* positions, float factor) {
  const int row = blockIdx.x;
  const int position = positions[row];
  const float angle = static_cast<float>(position) * frequencies[threadIdx.x];
  float2& out = angles[static_cast<std::size_t>(row) * blockDim.x + threadIdx.x];
  sincosf(angle, &out.y, &out.x);
  out.x *= factor;
  out.y *= factor;
}

}  // namespace

void rope_angles(float2* angles, const float* frequencies, int half, const std::int32_t* positions,
                 int rows, cudaStream_t stream, float factor) {
  if (rows > 0) {
    angles_kernel<<<rows, half, 0, stream>>>(angles, frequencies, positions, factor);
    winnow::cuda::check_launch("rotary angles");
  }
}

}  // namespace winnow::ops::cuda
