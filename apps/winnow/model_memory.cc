#include "apps/winnow/model_memory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "apps/winnow/output.h"
#include "apps/winnow/sequence_bytes.h"
#include "base/host_memory.h"
#include "engine/cache_memory.h"
#include "engine/options.h"
#include "engine/weight_memory.h"

namespace winnow::cli {
namespace {

using engine::WeightStorage;

constexpr std::string_view kFormatOfDevices = "fp8";
constexpr std::array<std::pair<std::string_view, WeightStorage>, 3> kSmallFormats{
    {{"int8", WeightStorage::int8},
     {"int4", WeightStorage::int4},
     {kFormatOfDevices, WeightStorage::fp8}}};

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

ModelMemory memory_of(const model::Checkpoint& checkpoint, ops::EntryFormat format,
                      const MemoryPlan& plan) {
  const model::ModelSpec& spec = checkpoint.spec();
  ModelMemory memory;
  memory.chat_tokens = std::min(plan.context, spec.max_positions);
  const SequenceBytes chat =
      sequence_bytes(spec, format, memory.chat_tokens, trained_compression(spec));
  memory.chat_dense = chat.dense;
  memory.chat = chat.compressed;
  memory.available = static_cast<double>(plan.memory.bytes().value_or(available_host_memory()));
  const auto add = [&](std::string_view name, double weights) {
    const double needed = weights + engine::memory_of_cache(memory.chat);
    memory.formats.push_back({name, weights, memory.available - needed});
  };
  add("auto", engine::weight_memory(checkpoint, WeightStorage::as_stored).all());
  for (const auto& [name, storage] : kSmallFormats) {
    add(name, engine::weight_bytes(spec, storage));
  }
  memory.quantized = checkpoint.sizes().quantized;
  return memory;
}

std::string chat_text(const ModelMemory& memory) {
  const std::string dense = memory.chat < memory.chat_dense
                                ? fmt::format(" ({} when dense)", readable_bytes(memory.chat_dense))
                                : "";
  return fmt::format("cache of one chat of {} tokens: {}{}; {} available",
                     grouped(memory.chat_tokens), readable_bytes(memory.chat), dense,
                     readable_bytes(memory.available));
}

std::string format_text(const FormatMemory& memory) {
  const std::string_view where = memory.format == kFormatOfDevices ? " (on a GPU)" : "";
  const std::string verdict = memory.spare >= 0.0
                                  ? fmt::format("fits, {} to spare", readable_bytes(memory.spare))
                                  : fmt::format("too large by {}", readable_bytes(-memory.spare));
  return fmt::format("{:<10} {:>9}: {}{}", memory.format, readable_bytes(memory.weights), verdict,
                     where);
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
  auto formats = Json::array();
  for (const FormatMemory& format : memory.formats) {
    formats.push_back({{"weights", format.format},
                       {"weight_bytes", format.weights},
                       {"spare_bytes", format.spare},
                       {"fits", format.spare >= 0.0}});
  }
  return {{"weight_bytes", memory.formats.front().weights},
          {"chat_tokens", memory.chat_tokens},
          {"chat_bytes", memory.chat},
          {"chat_bytes_dense", memory.chat_dense},
          {"available_bytes", memory.available},
          {"fits", memory.formats.front().spare >= 0.0},
          {"formats", formats},
          {"stored_as", sizes.types.empty() ? Json()
                                            : Json({{"types", sizes.types},
                                                    {"file_bytes", sizes.in_file},
                                                    {"memory_bytes", in_memory(sizes)}})}};
}

}  // namespace winnow::cli
