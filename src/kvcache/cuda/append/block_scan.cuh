// Prefix sums over the threads of a block that handles a whole row.
#pragma once

namespace winnow::kvcache::cuda {

inline constexpr int kScanThreads = 1024;

/// Inclusive sums over a block's threads; `total` receives the sum of all.
inline __device__ int block_scan(int x, int& total) {
  __shared__ int sums[kScanThreads / 32];
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  for (int step = 1; step < 32; step *= 2) {
    const int before = __shfl_up_sync(0xFFFFFFFFU, x, step);
    x += lane >= step ? before : 0;
  }
  __syncthreads();  // all threads have read the sums of an earlier call
  if (lane == 31) {
    sums[warp] = x;
  }
  __syncthreads();
  total = 0;
  for (int w = 0; w < kScanThreads / 32; ++w) {
    x += w < warp ? sums[w] : 0;
    total += sums[w];
  }
  return x;
}

}  // namespace winnow::kvcache::cuda
