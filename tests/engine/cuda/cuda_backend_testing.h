// Small models on a device and on the CPU, and checks that the two agree.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "api/llm_session.h"
#include "base/cuda/on_device.h"
#include "base/random.h"
#include "engine/cuda/cuda_cases.h"
#include "engine/cuda/cuda_families.h"
#include "engine/engine.h"
#include "model/config.h"
#include "model/spec_of.h"

namespace winnow::engine::testing {

using winnow::testing::OnDevice;

class CudaBackend : public OnDevice<::testing::Test> {};

inline std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  return info.param.name;
}

// For rules with a budget.
inline constexpr double kRatio = 4.0;

inline constexpr std::string_view kQwen3Next = "qwen3_next";
inline constexpr std::string_view kQwen35Moe = "qwen3_5_moe_text";

/// Whether the case's model has recurrent layers.
inline bool is_hybrid(const Case& c) {
  const std::string_view family = c.family;
  return family == kQwen3Next || family.starts_with("qwen3_5") || family.starts_with("lfm2") ||
         family == "bamba" || std::string_view(c.name).starts_with("granite_4");
}

// Keys of config.json in addition to the sizes.
inline nlohmann::json more_of(const Case& c) {
  nlohmann::json more = {
      {"attention_bias", c.bias}, {"mlp_bias", c.bias}, {"tie_word_embeddings", !c.bias}};
  if (std::string_view(c.family) == "gemma2") {
    more["layer_types"] = {"sliding_attention", "full_attention", "full_attention"};
    more["sliding_window"] = 48;
    more["query_pre_attn_scalar"] = c.head_dim;
    more["attn_logit_softcapping"] = 20.0;
    more["final_logit_softcapping"] = 10.0;
  } else if (std::string_view(c.family) == "gpt_oss") {
    more["num_local_experts"] = 6;
    more["swiglu_limit"] = 1.5;
    more["layer_types"] = {"full_attention", "sliding_attention", "full_attention"};
    more["sliding_window"] = 48;
  } else if (std::string_view(c.family) == "mixtral") {
    more["num_local_experts"] = 6;
  } else if (std::string_view(c.family).ends_with("moe") || c.family == kQwen3Next ||
             c.family == kQwen35Moe) {
    more["num_experts"] = 12;
    more["num_experts_per_tok"] = 3;
    more["moe_intermediate_size"] = 160;
    more["shared_expert_intermediate_size"] = 96;
    if (c.mixed) {
      more["mlp_only_layers"] = {1};
    }
  }
  if (std::string_view(c.family).starts_with("lfm2")) {
    more.update({{"layer_types", {"conv", "full_attention", "conv"}}, {"num_dense_layers", 1}});
  } else if (std::string_view(c.family) == "bamba" || std::string_view(c.name) == "granite_4") {
    more.update({{"layer_types", {"mamba", "attention", "mamba"}},
                 {"attn_layer_indices", {1}},
                 {"mamba_n_heads", 8},
                 {"mamba_n_groups", 2},
                 {"mamba_d_state", 48},
                 {"num_local_experts", 0},
                 {"shared_intermediate_size", 96}});
  } else if (is_hybrid(c)) {
    more.update({{"full_attention_interval", 2},
                 {"linear_num_key_heads", 2},
                 {"linear_num_value_heads", 4},
                 {"linear_key_head_dim", 32},
                 {"linear_value_head_dim", 48}});
  }
  for (const auto& [family, keys] : winnow::testing::dense_cousins(3, 48)) {
    if (std::string_view(c.family) == family && !keys.is_null()) {
      more.update(keys);
    }
  }
  more.update(general_keys(c.name));
  return more;
}

inline model::ModelSpec config_of(const Case& c, int kv_heads = 2) {
  const nlohmann::json more = more_of(c);
  const int layers =
      more.contains("layer_types") ? static_cast<int>(more["layer_types"].size()) : 3;
  model::ModelSpec config = winnow::testing::spec_of(c.family,
                                                     {.hidden = 256,
                                                      .layers = layers,
                                                      .heads = kv_heads * c.group,
                                                      .kv_heads = kv_heads,
                                                      .head_dim = c.head_dim,
                                                      .intermediate = 416,
                                                      .vocab = 1003,
                                                      .max_positions = 4096},
                                                     more);
  if (std::string_view(c.name) == "llama_half_rotated") {
    config = winnow::testing::half_rotated(config);
  }
  if (c.rule == kvcache::RuleKind::dmc) {
    config.dmc.emplace();
    return config;
  }
  config.dms.emplace();
  config.dms->window = 40;
  config.dms->shift = c.shift;
  config.dms->source =
      c.adapter ? model::DmsConfig::Source::adapter : model::DmsConfig::Source::borrowed;
  config.dms->adapter.own_norm = !c.probe;
  return config;
}

inline double relative_error(std::span<const float> a, std::span<const float> b) {
  double difference = 0.0;
  double norm = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / norm);
}

/// Expects equal counts [tokens, heads] of seen entries, or names those that differ. With `selects`
/// one in fifty may differ by less than a page: of pages that are nearly as promising, the device
/// may read another one than the CPU, and a page that is not full holds fewer entries.
inline void expect_seen(std::span<const std::int32_t> got, std::span<const std::int32_t> expected,
                        std::size_t heads, bool selects) {
  std::string differences;
  std::size_t differing = 0;
  int most = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] != expected[i]) {
      ++differing;
      most = std::max(most, std::abs(got[i] - expected[i]));
      differences +=
          fmt::format("token {} head {}: {}, not {}\n", i / heads, i % heads, got[i], expected[i]);
    }
  }
  EXPECT_LE(differing, selects ? std::max(heads / 2, got.size() / 50) : 0) << differences;
  EXPECT_LE(most, selects ? ops::kPageEntries - 1 : 0) << differences;
}

inline std::vector<std::int32_t> random_tokens(int count, int vocab) {
  Random random(7);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  for (auto& token : tokens) {
    token = static_cast<std::int32_t>(random.uniform() * vocab);
  }
  return tokens;
}

inline EngineConfig engine_config(const Case& c, bool on_device) {
  EngineConfig config;
  config.cache.rule = c.rule;
  config.cache.format = c.format;
  config.cache.window = kvcache::traits_of(c.rule).marks ? 40 : 0;
  config.cache.shift = c.shift;
  config.cache.cr = kRatio;
  config.cache.max_bytes = std::size_t{1} << 28;
  config.compute = on_device ? DType::bf16 : DType::f32;
  config.weights = c.weights;
  if (on_device) {
    config.cuda_device = 0;
  }
  return config;
}

// Feeds the whole text in pieces: a chunk, single tokens, a chunk, single tokens.
inline void feed_both(Session& cpu, Session& cuda, const model::ModelSpec& config, const Case& c) {
  const auto tokens = random_tokens(400, config.vocab);
  const auto vocab = static_cast<std::size_t>(config.vocab);
  const auto heads = static_cast<std::size_t>(config.cached_heads());
  std::size_t first = 0;
  for (const std::size_t count : {150U, 1U, 1U, 1U, 100U, 3U, 1U, 1U, 16U, 17U, 87U, 1U, 1U}) {
    const auto chunk = std::span(tokens).subspan(first, count);
    std::vector<float> expected(count * vocab);
    std::vector<float> got(count * vocab, NAN);
    std::vector<std::int32_t> expected_seen(count * heads);
    std::vector<std::int32_t> seen(count * heads);
    cpu.feed(chunk, expected, expected_seen);
    // Single tokens go through the captured step, which only reports what Quest's queries see.
    const bool with_seen = count > 1 || c.rule == kvcache::RuleKind::quest;
    cuda.feed(chunk, got, with_seen ? std::span(seen) : std::span<std::int32_t>());
    EXPECT_LE(relative_error(got, expected), c.tolerance) << "tokens from " << first;
    if (with_seen) {
      SCOPED_TRACE(fmt::format("tokens from {}", first));
      expect_seen(seen, expected_seen, heads, kvcache::traits_of(c.rule).selects);
    }
    first += count;
  }
  const CacheUsage on_cpu = cpu.usage();
  const CacheUsage on_cuda = cuda.usage();
  EXPECT_EQ(on_cuda.per_head, on_cpu.per_head);
  EXPECT_EQ(on_cuda.live_entries, on_cpu.live_entries);
  EXPECT_EQ(on_cuda.tokens, on_cpu.tokens);
  EXPECT_EQ(on_cuda.state_bytes, on_cpu.state_bytes);
}

}  // namespace winnow::engine::testing
