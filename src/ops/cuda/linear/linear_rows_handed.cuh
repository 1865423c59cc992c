// How layers of one linear_rows kernel hand on their results: kNotYet in linear_rows_kernels.h.
#pragma once

#include "ops/cuda/linear/linear_rows_kernels.h"

namespace winnow::ops::cuda {

/// The memory in which this kernel hands on, before the block's outputs end their turn.
template <class Program>
__device__ std::byte* handed_memory(const Program& program) {
  const std::uint32_t memory = __ldcg(&program.turns[blockIdx.x].memory);
  return program.handed + std::size_t{memory} * program.handed_bytes;
}

/// Makes a layer take and leave in a memory what is handed on.
template <class Program>
__device__ void hand_on(const Program& program, int number, std::uint32_t memory,
                        RowsLayer& layer) {
  std::byte* from = program.handed + std::size_t{memory} * program.handed_bytes;
  if (number > 0) {
    layer.input.x = reinterpret_cast<const bf16*>(from + program.rows_at[number]);
    layer.input.square_sums = reinterpret_cast<const float*>(from + program.sums_at[number]);
  }
  if (number + 1 < program.count) {
    auto* rows = reinterpret_cast<bf16*>(from + program.rows_at[number + 1]);
    layer.activated = rows;
    layer.residual.normed = rows;
    layer.residual.square_sums = reinterpret_cast<float*>(from + program.sums_at[number + 1]);
    if (layer.output == RowsLayer::Output::store) {
      layer.values = reinterpret_cast<float*>(from + program.sums_at[number + 1]);
    }
  }
}

/// Where a value of several rows that are handed on lies: handed_row_bytes().
template <class Format>
__device__ std::size_t handed_place(int rows, int row, int column) {
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

/// Whether it has been written.
inline __device__ bool is_there(const bf16* from) {
  std::uint16_t bits;
  asm volatile("ld.relaxed.gpu.global.b16 %0, [%1];" : "=h"(bits) : "l"(from) : "memory");
  return bits != static_cast<std::uint16_t>(kNotYet);
}

/// Eight values, each of them written or kNotYet.
inline __device__ uint4 read_handed(const bf16* from) {
  uint4 x;
  asm volatile("ld.relaxed.gpu.global.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "l"(from)
               : "memory");
  return x;
}

/// The larger of each two of eight values' bits.
inline __device__ std::uint32_t largest_of(const uint4& x) {
  return __vmaxu2(__vmaxu2(x.x, x.y), __vmaxu2(x.z, x.w));
}
/// Whether one of those is kNotYet.
inline __device__ bool lacks(std::uint32_t largest) {
  return (largest & 0xFFFFU) == (kNotYet & 0xFFFFU) || largest >> 16 == kNotYet >> 16;
}
/// Whether one of eight values is kNotYet.
inline __device__ bool lacks(const uint4& x) {
  return lacks(largest_of(x));
}

/// One value.
inline __device__ float read_handed(const float* from) {
  float x;
  asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(x) : "l"(from) : "memory");
  return x;
}

/// Four and two values, each of them written or kNotYet.
inline __device__ float4 read_handed(const float4* from) {
  float4 x;
  asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
               : "l"(from)
               : "memory");
  return x;
}
inline __device__ float2 read_handed(const float2* from) {
  float2 x;
  asm volatile("ld.relaxed.gpu.global.v2.f32 {%0, %1}, [%2];"
               : "=f"(x.x), "=f"(x.y)
               : "l"(from)
               : "memory");
  return x;
}

inline __device__ bool lacks(float x) {
  return __float_as_uint(x) == kNotYet;
}
inline __device__ bool lacks(const float2& x) {
  return lacks(x.x) || lacks(x.y);
}
inline __device__ bool lacks(const float4& x) {
  return lacks(x.x) || lacks(x.y) || lacks(x.z) || lacks(x.w);
}

/// This block's turn; fills the other memory with kNotYet. By threads [0, threads), as is
/// end_turn(), between which they meet at a barrier.
template <class Program>
__device__ RowsTurn take_turn(const Program& program, int thread, int threads) {
  const uint4 words = __ldcg(reinterpret_cast<const uint4*>(&program.turns[blockIdx.x]));
  const RowsTurn turn{words.x, {words.y, words.z}, 0};
  const std::uint32_t other = 1 - turn.memory;
  auto* pieces =
      reinterpret_cast<uint4*>(program.handed + std::size_t{other} * program.handed_bytes);
  const int count = static_cast<int>((other == 0 ? turn.used[0] : turn.used[1]) / sizeof(uint4));
  for (int i = static_cast<int>(blockIdx.x) * threads + thread; i < count;
       i += program.blocks * threads) {
    __stcg(&pieces[i], {kNotYet, kNotYet, kNotYet, kNotYet});
  }
  return turn;
}

/// Leaves the turn to the next kernel.
template <class Program>
__device__ void end_turn(const Program& program, const RowsTurn& turn, int thread) {
  if (thread == 0) {
    const std::uint32_t used = program.handed_used;
    program.turns[blockIdx.x] = {
        1 - turn.memory, {turn.memory == 0 ? used : 0, turn.memory == 0 ? 0 : used}, 0};
  }
}

}  // namespace winnow::ops::cuda
