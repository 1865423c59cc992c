// What data-parallel ranks share out.
#pragma once

#include <cstdint>

namespace winnow::train {

/// Stages of ZeRO (Rajbhandari et al. 2020).
enum class ZeroStage : std::uint8_t {
  moments = 1,     // the optimiser's state
  everything = 3,  // and gradients and weights, which are whole for a layer at a time
};

}  // namespace winnow::train
