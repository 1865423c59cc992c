// The rotation of 4-bit entries: it spreads what a few channels hold over all of them, so that
// every key and value looks like normal noise and one codebook serves all (QuIP#, Tseng et al.
// 2024; TurboQuant, Zandieh et al. 2025; HIGGS, Malinovskii et al. 2025).
#pragma once

#include <cstdint>
#include <span>

namespace winnow::ops {

/// Whether a channel's sign is changed before it is mixed with others: coin flips, the same for
/// every model, layer and head.
constexpr bool flips_sign(int channel) {
  std::uint32_t x = static_cast<std::uint32_t>(channel + 1) * 0x9E3779B9U;
  x = (x ^ x >> 15) * 0x2C1B3C6DU;
  x = (x ^ x >> 12) * 0x297A2D39U;
  return (x ^ x >> 15) >> 31 != 0;
}

/// x = R x for an orthogonal R; x [head_dim], a multiple of 8. With head_dim = n m, n a power of
/// two and m odd, R is, after the change of signs, the Hadamard matrix of size n (Kronecker) the
/// reflection I - 2/m of size m, which is left out where m = 1. Sums are taken in an order that the
/// device keeps (ops/cuda/pages/head_vector.cuh), so both give the same bits.
void rotate(std::span<float> x);

/// Undoes it: x = R^T x.
void rotate_back(std::span<float> x);

}  // namespace winnow::ops
