// What a step tells the host before it is over.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "base/cuda/device.h"

namespace winnow::model::cuda {

/// In page-locked memory in place of a token that a step has not chosen yet.
inline constexpr std::int32_t kPending = std::numeric_limits<std::int32_t>::min();

/// Waits until no token is kPending: end_step() has then done all that it does. That is some
/// microseconds sooner than the stream is known to be idle. Throws Error if the stream has failed.
void wait_for_tokens(std::span<std::int32_t> tokens, const winnow::cuda::Stream& stream);

}  // namespace winnow::model::cuda
