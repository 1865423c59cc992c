// The input of one pass through the model.
#pragma once

#include <cstdint>
#include <vector>

namespace winnow::train {

/// Packed documents, token after token. A document sees only itself; its positions start at 0.
struct Batch {
  std::vector<std::int32_t> tokens;     // [T]
  std::vector<std::int32_t> targets;    // [T]: the next token; any value where the weight is 0
  std::vector<float> weights;           // [T]: the weight of the prediction in the loss
  std::vector<std::int32_t> first_key;  // [T], non-decreasing: first row of the token's document

  [[nodiscard]] std::size_t size() const { return tokens.size(); }
};

}  // namespace winnow::train
