// The state that data-parallel ranks divide among themselves.
#pragma once

#include <cstdint>

namespace winnow::train {

/// Stages of ZeRO (Rajbhandari et al. 2020).
enum class ZeroStage : std::uint8_t {
  moments = 1,     // the optimiser's state
  everything = 3,  // also gradients and weights; weights are whole for a layer or two at a time
};

}  // namespace winnow::train
