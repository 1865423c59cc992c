// Statistics of a model's queries as a safetensors file: for each layer N of the cache
// layers.N.query_means [heads, channels] and layers.N.query_lengths [heads, planes], fp32.
#pragma once

#include <filesystem>

#include "kvcache/calibration.h"

namespace winnow::engine {

void write_calibration(const std::filesystem::path& path, const kvcache::Calibration& calibration,
                       const kvcache::CacheShape& shape);

/// Throws Error if a calibration must not be written to `path`: it holds something else.
void require_calibration(const std::filesystem::path& path);

/// Throws Error, which names the file, unless it has the statistics of a model of this shape.
kvcache::Calibration read_calibration(const std::filesystem::path& path,
                                      const kvcache::CacheShape& shape);

}  // namespace winnow::engine
