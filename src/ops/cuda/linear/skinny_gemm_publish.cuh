// How layers of one skinny GEMM kernel publish their results: kUnpublished in
// skinny_gemm_kernels.h.
#pragma once

#include "ops/cuda/linear/skinny_gemm_kernels.h"

namespace winnow::ops::cuda {

/// The memory in which this kernel publishes, before the block's epilogue ends its phase.
template <class Program>
__device__ std::byte* published_memory(const Program& program) {
  const std::uint32_t memory = __ldcg(&program.phases[blockIdx.x].memory);
  return program.published + std::size_t{memory} * program.published_bytes;
}

/// Redirects a layer's inputs and outputs to the memory of published results.
template <class Program>
__device__ void use_published(const Program& program, int number, std::uint32_t memory,
                              SkinnyGemm& layer) {
  std::byte* from = program.published + std::size_t{memory} * program.published_bytes;
  if (number > 0) {
    layer.input.x = reinterpret_cast<const bf16*>(from + program.rows_at[number]);
    layer.input.square_sums = reinterpret_cast<const float*>(from + program.sums_at[number]);
  }
  if (number + 1 < program.count) {
    auto* rows = reinterpret_cast<bf16*>(from + program.rows_at[number + 1]);
    layer.activated = rows;
    layer.residual.normed = rows;
    layer.residual.square_sums = reinterpret_cast<float*>(from + program.sums_at[number + 1]);
    if (layer.epilogue == SkinnyGemm::Epilogue::store) {
      layer.values = reinterpret_cast<float*>(from + program.sums_at[number + 1]);
    }
  }
}

/// The position of a published value when there are several rows: published_row_bytes().
template <class Format>
__device__ std::size_t published_offset(int rows, int row, int column) {
  constexpr int kColumns = chunk_columns(Format::kFormat);
  constexpr int kPitch = chunk_pitch(Format::kFormat) / int{sizeof(bf16)};
  return (column / kColumns * rows + row) * kPitch + column % kColumns;
}

/// Writes a result for readers that are not synchronised with this thread.
inline __device__ void publish(bf16* to, bf16 x) {
  asm volatile("st.relaxed.gpu.global.b16 [%0], %1;" ::"l"(to), "h"(x.bits) : "memory");
}
inline __device__ void publish(float* to, float x) {
  asm volatile("st.relaxed.gpu.global.f32 [%0], %1;" ::"l"(to), "f"(x) : "memory");
}

inline __device__ void publish(float2* to, float2 x) {
  asm volatile("st.relaxed.gpu.global.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(x.x), "f"(x.y)
               : "memory");
}
/// Eight values.
inline __device__ void publish(bf16* to, const uint4& x) {
  asm volatile("st.relaxed.gpu.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(x.x), "r"(x.y),
               "r"(x.z), "r"(x.w)
               : "memory");
}

/// Whether the value has been written.
inline __device__ bool is_published(const bf16* from) {
  std::uint16_t bits;
  asm volatile("ld.relaxed.gpu.global.b16 %0, [%1];" : "=h"(bits) : "l"(from) : "memory");
  return bits != static_cast<std::uint16_t>(kUnpublished);
}

/// Eight values, each either written or kUnpublished.
inline __device__ uint4 read_published(const bf16* from) {
  uint4 x;
  asm volatile("ld.relaxed.gpu.global.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "l"(from)
               : "memory");
  return x;
}

/// The element-wise maximum of pairs among eight values' bits.
inline __device__ std::uint32_t largest_of(const uint4& x) {
  return __vmaxu2(__vmaxu2(x.x, x.y), __vmaxu2(x.z, x.w));
}
/// Whether one of these values is kUnpublished.
inline __device__ bool unpublished(std::uint32_t largest) {
  return (largest & 0xFFFFU) == (kUnpublished & 0xFFFFU) || largest >> 16 == kUnpublished >> 16;
}
/// Whether one of eight values is kUnpublished.
inline __device__ bool unpublished(const uint4& x) {
  return unpublished(largest_of(x));
}

/// One value.
inline __device__ float read_published(const float* from) {
  float x;
  asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(x) : "l"(from) : "memory");
  return x;
}

/// Four and two values, each either written or kUnpublished.
inline __device__ float4 read_published(const float4* from) {
  float4 x;
  asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
               : "l"(from)
               : "memory");
  return x;
}
inline __device__ float2 read_published(const float2* from) {
  float2 x;
  asm volatile("ld.relaxed.gpu.global.v2.f32 {%0, %1}, [%2];"
               : "=f"(x.x), "=f"(x.y)
               : "l"(from)
               : "memory");
  return x;
}

inline __device__ bool unpublished(float x) {
  return __float_as_uint(x) == kUnpublished;
}
inline __device__ bool unpublished(const float2& x) {
  return unpublished(x.x) || unpublished(x.y);
}
inline __device__ bool unpublished(const float4& x) {
  return unpublished(x.x) || unpublished(x.y) || unpublished(x.z) || unpublished(x.w);
}

/// This block's phase; fills the other memory with kUnpublished. Called by threads [0, threads),
/// like end_phase(); they must meet at a barrier in between.
template <class Program>
__device__ PublishPhase begin_phase(const Program& program, int thread, int threads) {
  const uint4 words = __ldcg(reinterpret_cast<const uint4*>(&program.phases[blockIdx.x]));
  const PublishPhase phase{words.x, {words.y, words.z}, 0};
  const std::uint32_t other = 1 - phase.memory;
  auto* pieces =
      reinterpret_cast<uint4*>(program.published + std::size_t{other} * program.published_bytes);
  const int count = static_cast<int>((other == 0 ? phase.used[0] : phase.used[1]) / sizeof(uint4));
  for (int i = static_cast<int>(blockIdx.x) * threads + thread; i < count;
       i += program.blocks * threads) {
    __stcg(&pieces[i], {kUnpublished, kUnpublished, kUnpublished, kUnpublished});
  }
  return phase;
}

/// Passes the phase to the next kernel.
template <class Program>
__device__ void end_phase(const Program& program, const PublishPhase& phase, int thread) {
  if (thread == 0) {
    const std::uint32_t used = program.published_used;
    program.phases[blockIdx.x] = {
        1 - phase.memory, {phase.memory == 0 ? used : 0, phase.memory == 0 ? 0 : used}, 0};
  }
}

}  // namespace winnow::ops::cuda
