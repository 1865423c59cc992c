#include "kvcache/cache_shape.h"

#include "base/error.h"

namespace winnow::kvcache {

void validate(const CacheShape& shape) {
  require(shape.reach.empty() || shape.reach.size() == static_cast<std::size_t>(shape.layers),
          "{} reaches of layers, expected {}", shape.reach.size(), shape.layers);
  require(shape.heads.empty() || shape.heads.size() == static_cast<std::size_t>(shape.layers),
          "heads of {} layers, expected {}", shape.heads.size(), shape.layers);
  require(shape.states.layers >= 0 && shape.states.floats >= 0,
          "states of {} layers with {} floats", shape.states.layers, shape.states.floats);
  for (const int reach : shape.reach) {
    require(reach >= 0, "a layer's reach of {} tokens is negative", reach);
  }
}

}  // namespace winnow::kvcache
