// Warps take runs of tiles and work alone. A second kernel merges the parts; that costs less than
// waiting in this one for the last part to arrive.
#include "base/cuda/launch.cuh"
#include "ops/cuda/decode_run.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kThreads = kDecodeWarps * kWarpSize;

template <class Codes, int D>
__global__ void __launch_bounds__(kThreads)
    attention_kernel(const __grid_constant__ DecodeArguments arguments) {
  using Tiles = RunTiles<Codes, D>;
  extern __shared__ __align__(128) std::byte memory[];
  __shared__ typename Tiles::States states[kDecodeWarps];
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  std::byte* own = memory + warp * Tiles::warp_bytes(arguments.group);
  typename Tiles::Stream stream(arguments.entries.pool, own + Tiles::query_bytes(arguments.group),
                                states[warp]);
  RunAttention<Codes, D, Tiles> attention(arguments,
                                          static_cast<int>(blockIdx.x) * kDecodeWarps + warp,
                                          own, stream);
  attention.run([] {
    winnow::cuda::wait_for_predecessor();
    winnow::cuda::release_successor();
  });
}

/// A kernel, and what a block of it needs for query groups of some size.
struct Kernel {
  void (*kernel)(DecodeArguments);
  int (*warp_bytes)(int group);

  [[nodiscard]] int shared_bytes(int group) const { return kDecodeWarps * warp_bytes(group); }
};

template <class Codes, int D>
Kernel kernel_of() {
  return {attention_kernel<Codes, D>,
          [](int group) { return RunTiles<Codes, D>::warp_bytes(group); }};
}

template <class Codes>
Kernel kernel_for(int head_dim) {
  switch (head_dim) {
    case 64:
      return kernel_of<Codes, 64>();
    case 80:
      return kernel_of<Codes, 80>();
    case 96:
      return kernel_of<Codes, 96>();
    default:
      return kernel_of<Codes, 128>();
  }
}

Kernel kernel_for(DType format, int head_dim) {
  switch (format) {
    case DType::bf16:
      return kernel_for<Bf16Codes>(head_dim);
    case DType::f8e4m3:
      return kernel_for<F8Codes>(head_dim);
    default:
      return kernel_for<I8Codes>(head_dim);
  }
}

}  // namespace

int resident_workers(DType format, int head_dim, int group) {
  const Kernel kernel = kernel_for(format, head_dim);
  int blocks = 0;
  winnow::cuda::check(
      cudaFuncSetAttribute(kernel.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           kernel.shared_bytes(kMostGroup)),
      "shared memory of decode attention");
  winnow::cuda::check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                          &blocks, kernel.kernel, kThreads, kernel.shared_bytes(group)),
                      "blocks of decode attention");
  return blocks * winnow::cuda::multiprocessor_count() * kDecodeWarps;
}

void launch_attention(DType format, int head_dim, const DecodeArguments& arguments,
                      cudaStream_t stream) {
  const Kernel kernel = kernel_for(format, head_dim);
  winnow::cuda::launch(kernel.kernel, arguments.plan.workers / kDecodeWarps, kThreads,
                       kernel.shared_bytes(arguments.group), stream, true, arguments);
}

}  // namespace winnow::ops::cuda
