// Compares saved caches of whole models with those of their ranks.
#include "engine/ranks/saved_shards.h"

#include <gtest/gtest.h>

#include "engine/cpu_runner.h"
#include "kvcache/any_calibration.h"
#include "kvcache/every_rule.h"
#include "model/tiny_model.h"

namespace winnow::engine {
namespace {

using kvcache::RuleKind;
using kvcache::SavedSequence;

bool equal(const SavedSequence& a, const SavedSequence& b) {
  return a.length == b.length && a.archived == b.archived && a.entries == b.entries &&
         a.marks == b.marks && a.open == b.open && a.positions == b.positions &&
         a.attention == b.attention && a.state == b.state;
}

// What a single device saves after a random text.
SavedSequence saved_of(const model::Model& model, const EngineConfig& config,
                       const kvcache::SequenceLimits& limits) {
  const CpuBackend backend(model);
  const auto runner = backend.make_runner(config);
  const auto sequence = runner->open(limits);
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < limits.prompt_tokens; ++i) {
    tokens.push_back((i * i + 3 * i) % model.vocab());
  }
  const SequenceShare share{sequence.get(), tokens, 0, {}};
  runner->forward(std::span(&share, 1), {}, {});
  return sequence->save();
}

class SavedShards : public ::testing::TestWithParam<RuleKind> {};
INSTANTIATE_TEST_SUITE_P(Rules, SavedShards, ::testing::ValuesIn(winnow::testing::every_rule()),
                         winnow::testing::name_of_rule);

TEST_P(SavedShards, JoinToWhatOneDeviceSaves) {
  using Kind = model::RecurrentSpec::Kind;  // state spaces cannot be split
  const std::vector<winnow::testing::Recurrent> kinds{std::nullopt, Kind::delta_net,
                                                      Kind::short_conv};
  for (const auto& kind : kinds) {
    SCOPED_TRACE(kind ? winnow::testing::recurrent_name(*kind) : "attention");
    const model::ModelSpec spec = kind ? winnow::testing::tiny_hybrid(GetParam(), *kind)
                                       : winnow::testing::tiny_model(GetParam());
    model::Model model(spec, model::random_weights(spec, DType::f32, 7));
    if (kvcache::traits_of(GetParam()).marks) {
      model.draw_decisions({.rate = 0.6});
    }
    model.calibrate(winnow::testing::any_calibration(model.cache_shape()));
    EngineConfig config;
    config.cache = {.rule = GetParam(),
                    .max_bytes = std::size_t{1} << 24,
                    .window = winnow::testing::kTinyWindow,
                    .cr = 2.0};
    const kvcache::SequenceLimits limits{50, 60};
    const SavedSequence whole = saved_of(model, config, limits);
    const kvcache::CacheShape shape = model.cache_shape();
    const SavedForm form{
        spec, shape, {config.cache.format, shape.head_dim}, {config.cache, limits}};
    for (const int ranks : {2, 3, 4}) {
      if (ranks > 2 && (kind || kvcache::traits_of(GetParam()).needs_groups())) {
        continue;  // refused
      }
      std::vector<SavedSequence> parts;
      for (int rank = 0; rank < ranks; ++rank) {
        const model::Shard shard{rank, ranks};
        parts.push_back(shard_saved(form, whole, shard));
        EXPECT_LT(parts.back().entries.size(), whole.entries.size());
        kvcache::validate(parts.back(), model::cache_shape(model::shard_spec(spec, shard)),
                          form.layout, form.rule);
      }
      EXPECT_TRUE(equal(join_saved(form, parts), whole)) << ranks;
    }
  }
}

}  // namespace
}  // namespace winnow::engine
