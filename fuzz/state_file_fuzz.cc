// Any bytes as a file of a state: an Error, or a state that a cache can take, and go on from.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"
#include "checkpoint/safetensors.h"
#include "engine/state_file.h"
#include "kvcache/sequence_cache.h"

namespace {

using winnow::kvcache::RuleKind;

const winnow::kvcache::CacheShape kShape{.layers = 1, .kv_heads = 2, .head_dim = 8, .group = 1};
constexpr winnow::kvcache::SequenceLimits kLimits{20, 40};

winnow::engine::EngineConfig config_of(std::uint8_t choice) {
  winnow::engine::EngineConfig config;
  config.cache.rule = static_cast<RuleKind>(choice % winnow::kvcache::kRules.size());
  config.cache.format = winnow::ops::EntryFormat::bf16;
  config.cache.window = 5;
  config.cache.cr = 3.0;
  config.cache.max_bytes = std::size_t{1} << 20;
  return config;
}

std::string image_of(std::string_view header, std::string_view data) {
  const std::uint64_t length = header.size();
  std::string image(reinterpret_cast<const char*>(&length), sizeof length);
  image += header;
  image += data;
  return image;
}

/// A header and its data as a file that says it is of the kind, with a sound checksum: no fuzzer
/// would find one.
std::string signed_image(std::string_view header, std::string_view data,
                         const winnow::engine::StateKind& kind) {
  auto description = kind.description();
  description["format"] = "winnow-state-1";
  auto json = nlohmann::json::parse(header, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return image_of(header, data);
  }
  json["__metadata__"] = description;
  const auto dump = [&] {
    return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  const std::string image = image_of(dump(), data);
  const auto content = winnow::parse_safetensors(std::as_bytes(std::span(image)), "unsigned");
  description["sha256"] = winnow::engine::state_checksum(description, content.tensors);
  json["__metadata__"] = description;
  return image_of(dump(), data);
}

void go_on(const winnow::engine::SavedState& state, const winnow::engine::EngineConfig& config) {
  winnow::kvcache::Cache cache(config.cache, kShape);
  auto sequence = winnow::kvcache::restore(cache, kLimits, state.cache);
  if (!sequence) {
    return;
  }
  const std::vector<float> row(8, 1.0F);
  for (int t = 0; t < 20; ++t) {
    for (int head = 0; head < kShape.kv_heads; ++head) {
      auto& heads = sequence->head(0, head);
      heads.append(sequence->rule(),
                   {.key = row, .value = row, .decision = t % 3 == 0, .logit = -1.0F * (t % 5)});
      if (sequence->rule().drops() && heads.archive().size() > sequence->rule().budget) {
        heads.drop_slot(t % heads.archive().size());
      }
    }
  }
  const auto again = winnow::kvcache::save(*sequence);
  winnow::kvcache::validate(again, kShape, {config.cache.format, kShape.head_dim},
                            sequence->rule());
}

}  // namespace

/// The first byte chooses the rule. What follows is a file as it is or, if it begins with '{', a
/// header and, after a zero byte, its data.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  const auto config = config_of(data[0]);
  const winnow::engine::StateKind kind("model", kShape, config, kLimits);
  const std::string_view input(reinterpret_cast<const char*>(data + 1), size - 1);
  winnow::engine::SavedState state;
  try {
    std::string image(input);
    if (input.starts_with('{')) {
      const auto end = std::min(input.find('\0'), input.size());
      image =
          signed_image(input.substr(0, end), input.substr(std::min(end + 1, input.size())), kind);
    }
    state = winnow::engine::parse_state(std::as_bytes(std::span(image)), "input.state", kind);
  } catch (const winnow::Error&) {
    return 0;  // the only exception that may come out
  }
  go_on(state, config);
  return 0;
}
