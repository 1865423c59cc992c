#include "apps/winnow/sequence_bytes.h"

#include <algorithm>

#include "model/cost.h"
#include "model/model.h"

namespace winnow::cli {

SequenceBytes sequence_bytes(const model::ModelSpec& spec, ops::EntryFormat format, double tokens,
                             const Compression& compression) {
  const kvcache::CacheShape shape = model::cache_shape(spec);
  const auto entry = static_cast<double>(shape.page_layout(format).entry_bytes());
  const auto states = static_cast<double>(shape.states.bytes());
  const double dense = entry * dense_entries(spec, tokens);
  const double window = entry * dense_entries(spec, std::min(tokens, compression.window));
  const double compressed = compression.beside_window
                                ? window + (dense - window) / compression.ratio
                                : std::max(dense / compression.ratio, window);
  return {.dense = dense + states, .compressed = compressed + states};
}

}  // namespace winnow::cli
