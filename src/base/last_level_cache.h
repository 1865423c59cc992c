// The size of the cache that a CPU's cores share.
#pragma once

#include <cstddef>

namespace winnow {

/// Bytes of the last-level cache; 0 if unknown.
std::size_t last_level_cache_bytes();

}  // namespace winnow
