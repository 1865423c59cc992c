// Decode attention over what is in the cache. A second kernel merges the parts; that costs less
// than waiting in this one for the last part to arrive.
#include "base/cuda/launch.cuh"
#include "ops/cuda/decode_run.cuh"
#include "ops/cuda/kernel_shape.cuh"

namespace winnow::ops::cuda {
namespace {

// Queries as attention multiplies them.
template <int D>
struct GivenQueries {
  const DecodeArguments& arguments;
  struct Nothing {};

  __device__ const float* of(int row) const {
    return arguments.query + std::size_t(row) * arguments.group * D;
  }
  __device__ Nothing prepare(int) const { return {}; }
  __device__ void finish(Nothing, int, float*) const {}
};

template <class Codes, int D>
__global__ void __launch_bounds__(kDecodeThreads)
    attention_kernel(const __grid_constant__ DecodeArguments arguments) {
  extern __shared__ __align__(128) std::byte memory[];
  attend_runs<Codes, D>(arguments, GivenQueries<D>{arguments}, static_cast<int>(blockIdx.x),
                        memory);
}

using Kernel = void (*)(DecodeArguments);

static_assert(Bf16Codes::kWeightBits == part_bits(EntryFormat::bf16));
static_assert(F8Codes::kWeightBits == part_bits(EntryFormat::f8e4m3));
static_assert(I8Codes::kWeightBits == part_bits(EntryFormat::i8));
static_assert(Q4Codes::kWeightBits == part_bits(EntryFormat::q4));

Kernel kernel_for(EntryFormat format, int head_dim) {
  return with_shape(format, head_dim, [&]<EntryFormat kType, int D>() -> Kernel {
    return attention_kernel<CodesOf<kType>, D>;
  });
}

}  // namespace

int decode_shared_bytes(EntryFormat format, int head_dim, int group) {
  return with_shape(format, head_dim, [group]<EntryFormat kType, int D>() {
    return kDecodeWarps * decode_warp_bytes(D, kCodeBits<CodesOf<kType>>, group);
  });
}

int resident_workers(const void* kernel, EntryFormat format, int head_dim, int group) {
  int blocks = 0;
  winnow::cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           decode_shared_bytes(format, head_dim, kMostGroup)),
                      "shared memory of decode attention");
  winnow::cuda::check(
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, kDecodeThreads,
                                                    decode_shared_bytes(format, head_dim, group)),
      "blocks of decode attention");
  return blocks * winnow::cuda::multiprocessor_count() * kDecodeWarps;
}

int resident_workers(EntryFormat format, int head_dim, int group) {
  return resident_workers(reinterpret_cast<const void*>(kernel_for(format, head_dim)), format,
                          head_dim, group);
}

void launch_attention(EntryFormat format, int head_dim, const DecodeArguments& arguments,
                      cudaStream_t stream) {
  winnow::cuda::launch(kernel_for(format, head_dim), arguments.plan.workers / kDecodeWarps,
                       kDecodeThreads, decode_shared_bytes(format, head_dim, arguments.group),
                       stream, arguments.entries.settled, arguments);
}

}  // namespace winnow::ops::cuda
