// Every rule with the attention layers of every family: compares a CUDA device with the CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "api/llm_session.h"
#include "engine/cpu_runner.h"
#include "engine/cuda/cuda_backend.h"
#include "engine/cuda/cuda_backend_testing.h"
#include "kvcache/every_rule.h"

namespace winnow::engine::testing {
namespace {

using kvcache::RuleKind;

constexpr kvcache::SequenceLimits kTexts{60, 121};
// The last bit may decide which entries are dropped or which pages are read, and then logits
// differ. Unrelated logits differ by 1.4.
constexpr double kChosen = 1.3;

// Short pieces have larger errors than the texts for which the cases' tolerances were set.
double tolerance_of(const Case& c) {
  return std::min(2.0 * c.tolerance, 1.5e-1);
}

// Uses all experts, and no weights that jump where two logits are close (SparseMixer): otherwise
// rounding could choose other experts, and logits would have little in common.
model::ModelSpec spec_of(const Case& c) {
  model::ModelSpec config = config_of(c);
  for (model::LayerSpec& layer : config.layers) {
    if (auto& experts = layer.feed_forward.experts) {
      experts->active = experts->count;
      experts->active_groups = experts->groups;
      experts->nearness = 0.0F;
    }
  }
  return config;
}

// A case of each family, and further ones with several kinds of layers.
std::vector<Case> one_of_each_family() {
  const std::set<std::string_view> further = {
      "falcon_7b_group",        "gemma4_equal_heads", "gemma4_moe",       "gpt_neox_serial",
      "granitemoehybrid_dense", "granite_4",          "stablelm_parallel"};
  std::set<std::string_view> families;
  std::vector<Case> cases;
  for (Case c : kCases) {
    if (families.insert(c.family).second || further.contains(c.name)) {
      c.format = ops::EntryFormat::bf16;
      c.weights = WeightStorage::as_stored;
      cases.push_back(c);
    }
  }
  return cases;
}

class CudaFamilyRules : public OnDevice<::testing::TestWithParam<Case>> {
 protected:
  // Feeds chunks between single tokens. `seen`: also compares how many entries queries see.
  static void expect_same(Session& cpu, Session& cuda, int vocab, double tolerance, bool seen) {
    const auto tokens = random_tokens(kTexts.total_tokens, vocab);
    const auto heads = cpu.usage().per_head.size();
    std::size_t first = 0;
    for (const std::size_t count : {50U, 1U, 1U, 30U, 1U, 20U, 1U, 17U}) {
      const auto piece = std::span(tokens).subspan(first, count);
      std::vector<float> expected(count * static_cast<std::size_t>(vocab));
      std::vector<float> got(expected.size(), NAN);
      std::vector<std::int32_t> expected_visible(count * heads);
      std::vector<std::int32_t> visible(count * heads);
      cpu.feed(piece, expected, expected_visible);
      cuda.feed(piece, got, count > 1 ? std::span(visible) : std::span<std::int32_t>());
      EXPECT_LE(relative_error(got, expected), tolerance) << "tokens from " << first;
      if (seen && count > 1) {
        EXPECT_EQ(visible, expected_visible) << "tokens from " << first;
      }
      first += count;
    }
    EXPECT_EQ(cuda.usage().per_head, cpu.usage().per_head);
  }
};

INSTANTIATE_TEST_SUITE_P(Families, CudaFamilyRules, ::testing::ValuesIn(one_of_each_family()),
                         case_name);

TEST_P(CudaFamilyRules, WithABudget) {
  Case c = GetParam();
  const model::ModelSpec config = spec_of(c);
  const model::Model model(config, weights_of(config));
  const CpuBackend cpu(model);
  const auto cuda = make_backend(model, engine_config(c, true));
  for (const RuleKind rule : winnow::testing::every_device_rule_by_query()) {
    for (const double cr : {1.0, kRatio}) {
      SCOPED_TRACE(std::string(kvcache::rule_name(rule)) + " at " + std::to_string(cr));
      c.rule = rule;
      EngineConfig host = engine_config(c, false);
      EngineConfig device = engine_config(c, true);
      host.cache.cr = device.cache.cr = cr;
      host.cache.window = device.cache.window = 0;
      Session on_cpu(cpu, host, kTexts);
      Session on_cuda(*cuda, device, kTexts);
      const bool all = cr == 1.0;
      expect_same(on_cpu, on_cuda, config.vocab, all ? tolerance_of(c) : kChosen,
                  all || !kvcache::traits_of(rule).selects);
    }
  }
}

TEST_P(CudaFamilyRules, Merging) {
  Case c = GetParam();
  c.rule = RuleKind::dmc;
  const model::ModelSpec config = spec_of(c);
  model::Model model(config, weights_of(config));
  model.draw_decisions({.rate = 0.7});
  const CpuBackend cpu(model);
  const auto cuda = make_backend(model, engine_config(c, true));
  Session on_cpu(cpu, engine_config(c, false), kTexts);
  Session on_cuda(*cuda, engine_config(c, true), kTexts);
  expect_same(on_cpu, on_cuda, config.vocab, tolerance_of(c), true);
}

}  // namespace
}  // namespace winnow::engine::testing
