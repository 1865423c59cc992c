#include "apps/winnow/model_memory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
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

double in_memory(const model::StoredSizes& sizes) {
  return static_cast<double>(sizes.mapped + sizes.held);
}

// By bytes, most first.
std::vector<std::pair<std::string, std::size_t>> sorted_types(const model::StoredSizes& sizes) {
  std::vector<std::pair<std::string, std::size_t>> types(sizes.types.begin(), sizes.types.end());
  std::ranges::stable_sort(types, std::greater(), [](const auto& type) { return type.second; });
  return types;
}

nlohmann::ordered_json stored_json(const model::StoredSizes& sizes) {
  if (sizes.quantized.types.empty()) {
    return nullptr;
  }
  auto names = nlohmann::ordered_json::array();
  auto bytes = nlohmann::ordered_json::object();
  std::size_t in_file = 0;
  for (const auto& [name, size] : sorted_types(sizes)) {
    names.push_back(name);
    bytes[name] = size;
    in_file += size;
  }
  return {{"types", names},
          {"type_bytes", bytes},
          {"file_bytes", in_file},
          {"memory_bytes", in_memory(sizes)}};
}

}  // namespace

ModelMemory memory_of(const model::Checkpoint& checkpoint, ops::EntryFormat format,
                      const MemoryPlan& plan) {
  const model::ModelSpec& spec = checkpoint.spec();
  ModelMemory memory;
  memory.chat_tokens = std::min(plan.context, spec.max_positions);
  memory.is_cut = plan.context > spec.max_positions;
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
  memory.stored = checkpoint.sizes();
  return memory;
}

std::string chat_text(const ModelMemory& memory) {
  const std::string dense = memory.chat < memory.chat_dense
                                ? fmt::format(" ({} when dense)", readable_bytes(memory.chat_dense))
                                : "";
  return fmt::format("cache of one chat of {} tokens{}: {}{}; {} available",
                     grouped(memory.chat_tokens),
                     memory.is_cut ? ", all the model's positions" : "",
                     readable_bytes(memory.chat), dense, readable_bytes(memory.available));
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
  if (memory.stored.quantized.types.empty()) {
    return "";
  }
  std::vector<std::string> types;
  for (const auto& [name, bytes] : sorted_types(memory.stored)) {
    types.push_back(fmt::format("{} {}", name, readable_bytes(static_cast<double>(bytes))));
  }
  return fmt::format("{}; {} in memory", fmt::join(types, ", "),
                     readable_bytes(in_memory(memory.stored)));
}

nlohmann::ordered_json memory_json(const ModelMemory& memory) {
  using Json = nlohmann::ordered_json;
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
          {"stored_as", stored_json(memory.stored)}};
}

}  // namespace winnow::cli
