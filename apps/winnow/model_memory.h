// The memory that a checkpoint takes, and whether that is there.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "apps/winnow/memory_plan.h"
#include "model/checkpoint.h"
#include "ops/kv_page.h"

namespace winnow::cli {

/// Weights in one format.
struct FormatMemory {
  std::string_view format;  // of --weights
  double weights = 0.0;     // bytes
  double spare = 0.0;       // what is left beside weights and one chat; less than 0: it is missing
};

/// The cache of one chat, the memory that is available, and weights in each format.
struct ModelMemory {
  int chat_tokens = 0;
  bool is_cut = false;  // the plan has more tokens than the model has positions
  double chat_dense = 0.0;
  double chat = 0.0;  // with the rule that the model was trained for
  double available = 0.0;
  std::vector<FormatMemory> formats;  // auto first
  model::StoredSizes stored;
};
/// With a chat of plan.context tokens, or of the model's positions if these are fewer, in the
/// plan's memory, else in what this machine has available.
ModelMemory memory_of(const model::Checkpoint& checkpoint, ops::EntryFormat format,
                      const MemoryPlan& plan);

/// "cache of one chat of 8,192 tokens: 16.0 MiB (128 MiB when dense); 14.2 GiB available".
std::string chat_text(const ModelMemory& memory);
/// "int4        7.80 MiB: fits, 14.1 GiB to spare" or "...: too large by 1.20 GiB".
std::string format_text(const FormatMemory& memory);
/// "Q8_0 14.7 MiB, F32 24.0 KiB; 27.8 MiB in memory", of all tensors, if some are converted on
/// loading; empty: none are.
std::string stored_text(const ModelMemory& memory);

nlohmann::ordered_json memory_json(const ModelMemory& memory);

}  // namespace winnow::cli
