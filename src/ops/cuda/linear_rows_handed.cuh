// How layers of one linear_rows kernel hand on their results: kNotYet in linear_rows_kernels.h.
#pragma once

#include "ops/cuda/linear_rows_kernels.h"

namespace winnow::ops::cuda {

/// Makes a layer take and leave in a memory what is handed on.
inline __device__ void hand_on(const RowsProgram& program, int number, std::uint32_t memory,
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
  }
}

/// Writes a result for readers that are not synchronised with this thread.
inline __device__ void publish(bf16* to, bf16 x) {
  asm volatile("st.relaxed.gpu.global.b16 [%0], %1;" ::"l"(to), "h"(x.bits) : "memory");
}
inline __device__ void publish(float* to, float x) {
  asm volatile("st.relaxed.gpu.global.f32 [%0], %1;" ::"l"(to), "f"(x) : "memory");
}

/// Whether it has been written.
inline __device__ bool is_there(const bf16* from) {
  std::uint16_t bits;
  asm volatile("ld.relaxed.gpu.global.b16 %0, [%1];" : "=h"(bits) : "l"(from) : "memory");
  return bits != static_cast<std::uint16_t>(kNotYet);
}

/// What is or will be written.
inline __device__ float await(const float* from) {
  std::uint32_t bits;
  do {
    asm volatile("ld.relaxed.gpu.global.b32 %0, [%1];" : "=r"(bits) : "l"(from) : "memory");
  } while (bits == kNotYet);
  return __uint_as_float(bits);
}

/// This block's turn; fills the other memory with kNotYet. By threads [0, threads), as is
/// end_turn(), between which they meet at a barrier.
inline __device__ RowsTurn take_turn(const RowsProgram& program, int thread, int threads) {
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
inline __device__ void end_turn(const RowsProgram& program, const RowsTurn& turn, int thread) {
  if (thread == 0) {
    const std::uint32_t used = program.handed_used;
    program.turns[blockIdx.x] = {
        1 - turn.memory, {turn.memory == 0 ? used : 0, turn.memory == 0 ? 0 : used}, 0};
  }
}

}  // namespace winnow::ops::cuda
