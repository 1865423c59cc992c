#include "train/sharding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "parallel/single_rank.h"
#include "train/device_states.h"
#include "train/memory_plan.h"
#include "train/ranks_testing.h"
#include "train/sharded_tensors.h"

namespace winnow::train {
namespace {

model::ModelSpec deep_spec() {
  winnow::testing::Sizes sizes = testing::kTinySizes;
  sizes.layers = 12;
  return testing::tiny_config("llama", sizes);
}

std::vector<float> counting_up(std::size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 0.0F);
  return values;
}

TEST(Sharding, HoldsEachElementOnce) {
  const ParameterList list(deep_spec(), Trained::everything);
  const std::vector<float> all = counting_up(list.size());
  for (const ZeroStage stage : {ZeroStage::moments, ZeroStage::everything}) {
    for (const int ranks : {1, 2, 3, 7}) {
      for (const bool whole_matrices : {false, true}) {
        std::vector<float> held;
        for (int rank = 0; rank < ranks; ++rank) {
          const Sharding sharding(list, stage, rank, ranks, whole_matrices);
          std::vector<float> own(sharding.held(), -1.0F);
          for (const Parameter& parameter : list.list()) {
            const auto values = std::span(all).subspan(parameter.offset, parameter.count);
            sharding.copy_held(parameter.offset, values, own);
          }
          sharding.copy_held(0, all, own);
          EXPECT_TRUE(std::ranges::is_sorted(own));
          held.insert(held.end(), own.begin(), own.end());
        }
        std::ranges::sort(held);
        EXPECT_EQ(held, all);
      }
    }
  }
}

TEST(Sharding, KnowsWhatItHoldsOfARole) {
  const ParameterList list(deep_spec(), Trained::everything);
  const std::vector<float> all = counting_up(list.size());
  for (const Role role : {Role::embedding, Role::matrix, Role::vector}) {
    std::size_t total = 0;
    const auto range = list.range(role);
    for (int rank = 0; rank < 3; ++rank) {
      const Sharding sharding(list, ZeroStage::everything, rank, 3, false);
      std::vector<float> held(sharding.held());
      sharding.copy_held(0, all, held);
      const auto [begin, end] = sharding.held(range);
      for (const float at : std::span(held).subspan(begin, end - begin)) {
        EXPECT_GE(at, static_cast<float>(range.first));
        EXPECT_LT(at, static_cast<float>(range.second));
      }
      total += end - begin;
    }
    EXPECT_EQ(total, range.second - range.first);
  }
}

// Muon updates matrices as a whole.
TEST(Sharding, LeavesMatricesWhole) {
  const ParameterList list(deep_spec(), Trained::everything);
  for (int rank = 0; rank < 3; ++rank) {
    const Sharding sharding(list, ZeroStage::everything, rank, 3, true);
    for (const Section& section : sharding.sections()) {
      for (const Parameter& parameter : list.list()) {
        const std::size_t begin = section.partition.begin();
        EXPECT_FALSE(parameter.role == Role::matrix && parameter.offset < begin &&
                     begin < parameter.offset + parameter.count)
            << parameter.name;
      }
    }
  }
}

std::size_t floats_held(ZeroStage stage, int ranks) {
  const model::ModelSpec spec = deep_spec();
  const Sharding sharding(ParameterList(spec, Trained::everything), stage, 0, ranks, false);
  Parameters parameters(spec, Trained::everything,
                        stage == ZeroStage::everything ? &sharding : nullptr);
  const auto tensors = make_student_tensors(
      spec, [](const std::string&) { return std::nullopt; }, parameters, sharding,
      parallel::single_rank());
  return parameters.values().size() + parameters.gradients().size() +
         (stage == ZeroStage::everything ? 2 * ShardedTensors::whole_at_once(sharding) : 0);
}

TEST(Sharding, ARankHoldsItsPartAndALayer) {
  const auto all = static_cast<double>(floats_held(ZeroStage::moments, 1));
  EXPECT_EQ(floats_held(ZeroStage::moments, 4), floats_held(ZeroStage::moments, 1));
  EXPECT_LT(static_cast<double>(floats_held(ZeroStage::everything, 2)), 0.75 * all);
  EXPECT_LT(static_cast<double>(floats_held(ZeroStage::everything, 4)), 0.5 * all);
}

TEST(MemoryPlan, StageThreeSharesOutWeights) {
  TrainingOptions options = testing::in_parts(testing::language_options());
  options.ranks = 4;
  const model::ModelSpec spec = deep_spec();
  const MemoryPlan one = plan_memory(options, spec, 0);
  options.zero_stage = ZeroStage::everything;
  const MemoryPlan three = plan_memory(options, spec, 0);
  const auto states = [](const MemoryPlan& plan) {
    std::size_t sum = 0;
    for (const MemoryPlan::Part& part : plan.parts) {
      sum += part.name.ends_with("fp32") ? part.bytes : 0;
    }
    return static_cast<double>(sum);
  };
  EXPECT_LT(states(three), 0.6 * states(one));
}

// A rank that held all of one would send or add it alone.
TEST(Sharding, CutsEmbeddingAndHeadEach) {
  const model::ModelSpec spec =
      testing::tiny_config("qwen2", testing::kTinySizes, {{"tie_word_embeddings", false}});
  const ParameterList list(spec, Trained::everything);
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"}) {
    const Parameter& parameter = list.find(name);
    for (const int rank : {0, 1}) {
      const Sharding sharding(list, ZeroStage::everything, rank, 2, false);
      const auto [begin, end] =
          sharding.held({parameter.offset, parameter.offset + parameter.count});
      EXPECT_NEAR(static_cast<double>(end - begin), 0.5 * static_cast<double>(parameter.count), 8.0)
          << name << " of rank " << rank;
    }
  }
}

// Per parameter, stage 1 takes 6 + 12 / N bytes, stage 3 16 / N plus whole tensors; a teacher 2,
// or 2 / N.
TEST(DeviceStates, AreThePlansOfBothStages) {
  TrainingOptions options = testing::in_parts(testing::language_options());
  options.ranks = 4;
  const model::ModelSpec spec = deep_spec();
  const std::size_t count = ParameterList(spec, Trained::everything).size();
  const auto bytes = [&](ZeroStage stage) { return device_state_bytes(options, spec, stage); };
  EXPECT_EQ(bytes(ZeroStage::moments), count * 9);
  const std::size_t alone = bytes(ZeroStage::everything);
  EXPECT_GT(alone, count * 4);
  EXPECT_LT(alone, count * 6);
  options.retrofit = testing::retrofit_options(model::DmsConfig::Source::borrowed).retrofit;
  EXPECT_GT(bytes(ZeroStage::moments), count * 11);
  EXPECT_GT(bytes(ZeroStage::everything), alone + count / 2);
}

TEST(ZeroStage, ThreeOnDevicesHasLimits) {
  TrainingOptions options = testing::language_options();
  options.compute = DType::bf16;
  options.zero_stage = ZeroStage::everything;
  const model::ModelSpec spec = testing::tiny_config("llama");
  options.cuda_device = 0;
  validate(options, spec);
  options.muon.emplace();
  EXPECT_EQ(error_of([&] { validate(options, spec); }),
            "--zero-stage 3 with --device cuda and --optimizer muon: only CPU ranks have both");
  options.muon.reset();
  winnow::testing::Sizes sizes = testing::kTinySizes;
  sizes.layers = 4;
  const model::ModelSpec gemma =
      testing::tiny_config("gemma4_text", sizes, winnow::testing::gemma4_keys().front());
  EXPECT_EQ(error_of([&] { validate(options, gemma); }),
            "--zero-stage 3 with --device cuda: the model has embeddings for each layer, which "
            "GPUs do not share out");
}

}  // namespace
}  // namespace winnow::train
