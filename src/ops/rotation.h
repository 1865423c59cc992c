// The rotation of 4-bit entries: it spreads large values of a few channels over all channels, so
// that every key and value looks like normal noise and one codebook fits all (QuIP#, Tseng et al.
// 2024; TurboQuant, Zandieh et al. 2025; HIGGS, Malinovskii et al. 2025).
#pragma once

#include <cstdint>
#include <span>

namespace winnow::ops {

/// Whether a channel's sign is flipped before channels are mixed: coin flips, the same for
/// every model, layer and head.
constexpr bool flips_sign(int channel) {
  std::uint32_t x = static_cast<std::uint32_t>(channel + 1) * 0x9E3779B9U;
  x = (x ^ x >> 15) * 0x2C1B3C6DU;
  x = (x ^ x >> 12) * 0x297A2D39U;
  return (x ^ x >> 15) >> 31 != 0;
}

/// x = R x for an orthogonal R; x [head_dim], a multiple of 8. With head_dim = n m, n a power of
/// two and m odd, R flips signs, then applies the Kronecker product of the Hadamard matrix of size
/// n and the reflection I - 2/m of size m (omitted if m = 1). Sums are computed in the same order
/// as on the device (ops/cuda/pages/head_vector.cuh), so both give the same bits.
void rotate(std::span<float> x);

/// The inverse: x = R^T x.
void rotate_back(std::span<float> x);

}  // namespace winnow::ops
