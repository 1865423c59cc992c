// The cache that a CPU's cores share.
#pragma once

#include <cstddef>

namespace winnow {

/// Bytes of the last-level cache; 0 if the system does not say.
std::size_t last_level_cache_bytes();

}  // namespace winnow
