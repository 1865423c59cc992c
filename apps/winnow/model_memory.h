// The memory that a checkpoint takes on this machine's CPU.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "model/checkpoint.h"
#include "ops/kv_page.h"

namespace winnow::cli {

/// Weights in each format and the cache of one chat, and the memory that is available.
struct ModelMemory {
  double weights = 0.0;  // as loaded without --weights
  double int8 = 0.0;
  double int4 = 0.0;
  int chat_tokens = 0;
  double chat_dense = 0.0;
  double chat = 0.0;  // with the rule that the model was trained for
  double available = 0.0;
  std::string_view smaller;  // the first of int8 and int4 whose weights fit; empty: neither
  quantized::WeightSizes quantized;

  [[nodiscard]] bool fits() const { return weights + chat <= available; }
};
/// With a chat of `tokens`, or of the model's positions if these are fewer.
ModelMemory memory_of(const model::Checkpoint& checkpoint, ops::EntryFormat format, int tokens);

/// "weights 27.8 MiB (int8 14.7 MiB, int4 7.80 MiB) + 48.0 MiB for one chat of 4,096 tokens; ..."
std::string memory_text(const ModelMemory& memory);
/// "Q8_0: 14.8 MiB in the file, 27.8 MiB in memory", for weights that are converted on loading;
/// empty: none are.
std::string stored_text(const ModelMemory& memory);

nlohmann::ordered_json memory_json(const ModelMemory& memory);

}  // namespace winnow::cli
