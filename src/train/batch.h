// What one pass through the model is given.
#pragma once

#include <cstdint>
#include <vector>

namespace winnow::train {

/// Packed documents, token after token. A document sees only itself; its positions count from 0.
struct Batch {
  std::vector<std::int32_t> tokens;     // [T]
  std::vector<std::int32_t> targets;    // [T]: the token that follows; any where the weight is 0
  std::vector<float> weights;           // [T]: what the prediction counts in the loss
  std::vector<std::int32_t> first_key;  // [T], non-decreasing: where the token's document begins

  [[nodiscard]] std::size_t size() const { return tokens.size(); }
};

}  // namespace winnow::train
