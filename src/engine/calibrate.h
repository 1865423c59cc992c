// Statistics of a model's queries over a text.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "engine/engine.h"
#include "kvcache/calibration.h"

namespace winnow::engine {

/// Reads `tokens` as one text in steps of config.step_tokens, under config.cache, on the CPU. Calls
/// `on_step`, if given, with the number of tokens read. Throws Error when the cache has no room.
kvcache::Calibration calibrate(const Backend& backend, const EngineConfig& config,
                               std::span<const std::int32_t> tokens,
                               const std::function<void(std::size_t)>& on_step = {});

}  // namespace winnow::engine
