// Small models for a device and for the CPU, by what the two have to agree on.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "base/cuda/on_device.h"
#include "base/random.h"
#include "checkpoint/config.h"
#include "engine/engine.h"

namespace winnow::engine::testing {

using winnow::testing::OnDevice;

class CudaBackend : public OnDevice<::testing::Test> {};

struct Case {
  const char* name;
  Family family;
  int head_dim;
  int group;
  bool bias;
  kvcache::RuleKind rule;
  ops::EntryFormat format;
  WeightStorage weights;
  // Relative error of the logits. The CPU computes in float here, the device in bf16; where the two
  // round an entry to different fp8 codes, the difference is a sixteenth of it. And the CPU has no
  // fp8 weights: there it has the original ones.
  double tolerance;
  int shift = 1;
  bool adapter = false;  // decides, and not a borrowed channel
};

/// Without biases and an adapter, of weights in bf16, 64 channels and groups of four heads.
inline Case plain_case(const char* name, Family family, kvcache::RuleKind rule,
                       ops::EntryFormat format) {
  return {name, family, 64, 4, false, rule, format, WeightStorage::as_stored, 0.0};
}

// Of a rule with a budget.
inline constexpr double kRatio = 4.0;

inline ModelConfig config_of(const Case& c) {
  ModelConfig config;
  config.family = c.family;
  config.hidden = 256;
  config.layers = 3;
  config.kv_heads = 2;
  config.heads = 2 * c.group;
  config.head_dim = c.head_dim;
  config.intermediate = 416;
  config.vocab = 1003;
  config.max_positions = 4096;
  config.qk_norm = c.family == Family::qwen3;
  config.qkv_bias = config.output_bias = config.mlp_bias = c.bias;
  config.tied_embeddings = !c.bias;
  if (c.rule == kvcache::RuleKind::dmc) {
    config.dmc.emplace();
    return config;
  }
  config.dms.emplace();
  config.dms->window = 40;
  config.dms->shift = c.shift;
  config.dms->source = c.adapter ? DmsConfig::Source::adapter : DmsConfig::Source::borrowed;
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
  config.cache.window = c.rule == kvcache::RuleKind::dms ? 40 : 0;
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

}  // namespace winnow::engine::testing
