// Exchanges numbers of a step's rows between ranks, for kernels that add them up.
#pragma once

#include <cstdint>

#include "parallel/cuda/rank_flags.cuh"
#include "parallel/cuda/rank_sums.h"

namespace winnow::parallel::cuda {

/// The epoch that is stored with the numbers of sum `number` of this pass.
inline __device__ std::uint32_t epoch_of(const RowInboxes& inboxes, std::uint32_t number) {
  return *static_cast<const volatile std::uint32_t*>(inboxes.passes) * kMostSums + number;
}

/// The address, in the inbox of rank `owner`, of number `at` from rank `from`.
inline __device__ uint2* place_of(const RowInboxes& inboxes, int owner, int from,
                                  std::uint32_t number, std::size_t at) {
  const std::uint32_t place = number == 0 ? 2 : number % 2;
  return inboxes.of[owner] + (place * inboxes.ranks + from) * inboxes.stride + at;
}

/// Number `at` of a sum over ranks, to which this rank adds `own`, added in the order of ranks. A
/// number and its epoch are 8 bytes, which arrive together.
inline __device__ float sum_over_ranks(const RowInboxes& inboxes, std::uint32_t number,
                                       std::uint32_t epoch, std::size_t at, float own) {
  for (int peer = 0; peer < inboxes.ranks; ++peer) {
    if (peer != inboxes.rank) {
      asm volatile("st.volatile.global.v2.u32 [%0], {%1, %2};" ::"l"(
                       place_of(inboxes, peer, inboxes.rank, number, at)),
                   "r"(__float_as_uint(own)), "r"(epoch)
                   : "memory");
    }
  }
  float sum = 0.0F;
  for (int rank = 0; rank < inboxes.ranks; ++rank) {
    if (rank == inboxes.rank) {
      sum += own;
      continue;
    }
    const uint2* from = place_of(inboxes, inboxes.rank, rank, number, at);
    std::uint32_t value = 0;
    wait_until([&] {
      std::uint32_t of = 0;
      asm volatile("ld.volatile.global.v2.u32 {%0, %1}, [%2];"
                   : "=r"(value), "=r"(of)
                   : "l"(from)
                   : "memory");
      return of == epoch;
    });
    sum += __uint_as_float(value);
  }
  return sum;
}

}  // namespace winnow::parallel::cuda
