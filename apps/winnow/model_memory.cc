#include "apps/winnow/model_memory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "apps/winnow/output.h"
#include "apps/winnow/sequence_bytes.h"
#include "base/host_memory.h"
#include "engine/options.h"
#include "engine/weight_memory.h"

namespace winnow::cli {
namespace {

Compression trained_compression(const model::ModelSpec& spec) {
  const kvcache::RuleTraits& rule = kvcache::traits_of(engine::trained_rule(spec));
  if (rule.marks) {
    return {.ratio = std::max(spec.dms->target_cr, 1.0),
            .window = spec.dms->window + 1.0,
            .beside_window = true};
  }
  return {.ratio = rule.merges ? std::max(spec.dmc->target_cr, 1.0) : 1.0};
}

// Bytes of the quantised weights.
double in_memory(const quantized::WeightSizes& sizes) {
  return static_cast<double>(sizes.mapped + sizes.packed + sizes.converted);
}

}  // namespace

ModelMemory memory_of(const model::Checkpoint& checkpoint, ops::EntryFormat format, int tokens) {
  using engine::WeightStorage;
  const model::ModelSpec& spec = checkpoint.spec();
  ModelMemory memory;
  memory.weights = engine::weight_memory(checkpoint, WeightStorage::as_stored).all();
  memory.int8 = engine::weight_bytes(spec, WeightStorage::int8);
  memory.int4 = engine::weight_bytes(spec, WeightStorage::int4);
  memory.chat_tokens = std::min(tokens, spec.max_positions);
  const SequenceBytes chat =
      sequence_bytes(spec, format, memory.chat_tokens, trained_compression(spec));
  memory.chat_dense = chat.dense;
  memory.chat = chat.compressed;
  memory.available = static_cast<double>(available_host_memory());
  memory.smaller = engine::format_that_fits(spec, memory.available - memory.chat);
  memory.quantized = checkpoint.sizes().quantized;
  return memory;
}

std::string memory_text(const ModelMemory& memory) {
  const std::string dense = memory.chat < memory.chat_dense
                                ? fmt::format(" ({} when dense)", readable_bytes(memory.chat_dense))
                                : "";
  const std::string verdict =
      memory.fits()            ? "fits"
      : memory.smaller.empty() ? "too large"
                               : fmt::format("too large; fits with --weights {}", memory.smaller);
  return fmt::format(
      "weights {} (int8 {}, int4 {}) + {} for one chat of {} tokens{}; {} available: "
      "{}",
      readable_bytes(memory.weights), readable_bytes(memory.int8), readable_bytes(memory.int4),
      readable_bytes(memory.chat), grouped(memory.chat_tokens), dense,
      readable_bytes(memory.available), verdict);
}

std::string stored_text(const ModelMemory& memory) {
  const quantized::WeightSizes& sizes = memory.quantized;
  return sizes.types.empty()
             ? ""
             : fmt::format("{}: {} in the file, {} in memory", fmt::join(sizes.types, ", "),
                           readable_bytes(static_cast<double>(sizes.in_file)),
                           readable_bytes(in_memory(sizes)));
}

nlohmann::ordered_json memory_json(const ModelMemory& memory) {
  using Json = nlohmann::ordered_json;
  const quantized::WeightSizes& sizes = memory.quantized;
  return {{"weight_bytes", memory.weights},
          {"weight_bytes_int8", memory.int8},
          {"weight_bytes_int4", memory.int4},
          {"chat_tokens", memory.chat_tokens},
          {"chat_bytes", memory.chat},
          {"chat_bytes_dense", memory.chat_dense},
          {"available_bytes", memory.available},
          {"fits", memory.fits()},
          {"stored_as", sizes.types.empty() ? Json()
                                            : Json({{"types", sizes.types},
                                                    {"file_bytes", sizes.in_file},
                                                    {"memory_bytes", in_memory(sizes)}})}};
}

}  // namespace winnow::cli
