// The trainer's forward pass against the engine's model, which is tested against references.
#include <gtest/gtest.h>

#include "model/channels.h"
#include "model/fixture.h"
#include "ops/activation.h"
#include "ops/linear.h"
#include "ops/soft_cap.h"
#include "train/export.h"
#include "train/norms.h"
#include "train/training_world.h"

namespace winnow::train {
namespace {

// A checkpoint's tensors under training's names: a borrowed channel's rows are separate.
class CheckpointWeights {
 public:
  explicit CheckpointWeights(const model::Checkpoint& checkpoint)
      : spec_(checkpoint.spec()), frozen_(checkpoint) {
    for (int layer = 0; model::borrows_channels(spec_) && layer < spec_.layer_count(); ++layer) {
      if (!spec_.decides(layer)) {
        continue;
      }
      for (const std::string part : {"weight", "bias"}) {
        const auto query = fmt::format("model.layers.{}.self_attn.q_proj.{}", layer, part);
        const auto key = fmt::format("model.layers.{}.self_attn.k_proj.{}", layer, part);
        const std::string decision = decision_name(spec_, layer, part);
        if (spec_.dmc) {
          take_rows(key, decision, model::key_column);
          take_rows(query, omega_name(layer, part), model::query_row);
        } else {
          take_rows(query, decision, model::query_row);
        }
      }
    }
  }

  [[nodiscard]] Weights bind() const {
    return bind_weights(spec_, [this](const std::string& name) {
      const auto found = rows_.find(name);
      return found == rows_.end()
                 ? frozen_.find(name)
                 : std::optional(
                       TensorView{DType::f32, found->second.second,
                                  reinterpret_cast<const std::byte*>(found->second.first.data())});
    });
  }

 private:
  void take_rows(const std::string& from, const std::string& to, model::ColumnOf row_of) {
    const auto tensor = frozen_.find(from);
    if (!tensor) {
      return;
    }
    std::vector<float> all(static_cast<std::size_t>(tensor->count()));
    widen(*tensor, all);
    const std::size_t width = all.size() / static_cast<std::size_t>(tensor->shape[0]);
    Shape shape = tensor->shape;
    shape[0] = spec_.compressing_attention().kv_heads;
    auto& rows = rows_[to];
    rows.second = shape;
    for (int head = 0; head < shape[0]; ++head) {
      const std::size_t row = row_of(spec_, static_cast<std::size_t>(head)) * width;
      rows.first.insert(rows.first.end(), all.begin() + static_cast<std::ptrdiff_t>(row),
                        all.begin() + static_cast<std::ptrdiff_t>(row + width));
    }
  }

  model::ModelSpec spec_;
  FrozenTensors frozen_;
  std::map<std::string, std::pair<std::vector<float>, Shape>> rows_;
};

// Logits [T, vocab] of the training pass, with hard decisions if the model decides.
std::vector<float> training_logits(const model::Checkpoint& checkpoint,
                                   std::span<const std::int32_t> tokens) {
  const CheckpointWeights tensors(checkpoint);
  const Weights weights = tensors.bind();
  const model::ModelSpec& spec = checkpoint.spec();
  Batch batch;
  batch.tokens.assign(tokens.begin(), tokens.end());
  batch.first_key.assign(batch.size(), 0);
  Decoder decoder(spec, batch.size(), Keep::nothing);
  ops::Workspace workspace;
  ops::Context context{.compute = DType::f32, .workspace = &workspace};
  DecisionPass pass;
  pass.merge_span = static_cast<int>(tokens.size());
  if (spec.dmc || (spec.dms && spec.dms->evict)) {
    pass.mode = DecisionPass::Mode::hard;
  }
  decoder.forward(context, weights, batch, pass);
  const auto vocab = static_cast<std::size_t>(spec.vocab);
  std::vector<float> logits(batch.size() * vocab);
  const ops::Matrix<float> out(logits.data(), batch.size(), vocab);
  const auto hidden = decoder.hidden();
  detail::normalize(spec.final_norm, hidden, hidden, {weights.norm, weights.norm_bias});
  ops::linear(context, out, hidden, weights.head);
  ops::scale(out, spec.logit_multiplier);
  if (spec.final_soft_cap > 0.0F) {
    ops::soft_cap(out, spec.final_soft_cap);
  }
  return logits;
}

class OnFixtures : public ::testing::TestWithParam<std::string> {};

TEST_P(OnFixtures, ComputesWhatTheEngineComputes) {
  const auto directory = winnow::testing::fixture_models() / GetParam();
  const winnow::testing::Expected expected(directory / "expected.safetensors");
  const auto logits = training_logits(model::Checkpoint::open(directory), expected.tokens());
  EXPECT_LT(winnow::testing::largest_difference(logits, expected.logits()), 1e-3F);
}

INSTANTIATE_TEST_SUITE_P(
    Fixtures, OnFixtures,
    ::testing::Values("llama", "llama-biases", "llama-untied", "qwen2", "qwen2-sliding", "qwen3",
                      "mistral", "mistral-sliding", "gemma2", "dms-gemma2", "dms-own",
                      "dms-adapter-bias", "dms-adapter-layer", "dms-qwen3-borrowed",
                      "dms-shift1-first", "dms-shisa-flat", "dms-nvidia-llama",
                      "dms-nvidia-qwen3-adapter", "dmc-llama", "dmc-qwen3", "qwen3-next", "qwen3.5",
                      "qwen3.5-moe-whole", "dms-qwen3-next", "llama-yarn", "granite", "seed-oss",
                      "smollm3", "olmo2", "olmo3", "gemma3", "ministral", "arcee", "cwm", "exaone4",
                      "gemma", "gemma4", "gemma4-moe", "phi3", "phi3-longrope",
                      "phi3-longrope-long", "ministral3", "gemma3-whole", "mistral3-whole",
                      "qwen2.5-vl-whole", "qwen3-vl-whole", "mixtral", "qwen2-moe", "qwen3-moe",
                      "dms-qwen3-moe", "gpt-oss", "dms-gpt-oss", "lfm2", "lfm2-moe", "granite-4",
                      "granite-4-dense", "bamba", "deepseek-v2", "deepseek-v3", "glm4-moe-lite"),
    [](const auto& info) {
      std::string name = info.param;
      std::ranges::replace_if(
          name, [](char c) { return c == '-' || c == '.'; }, '_');
      return name;
    });

// The engine's cache must evict as in training.
void expect_run_as_trained(const testing::World& world, TrainingOptions options, int shift) {
  const bool merges = options.retrofit->dmc.has_value();
  options.steps = 40;
  options.decision_rate = merges ? 0.1 : 5e-3;
  options.retrofit->dms.shift = shift;
  options.retrofit->ramp.steps = 5;
  Trainer trainer(options, world.base(), world.shards());
  for (int i = 0; i < options.steps; ++i) {
    trainer.step();
  }
  save_model(world.path("model"), export_model(trainer, DType::f32));
  const model::Checkpoint checkpoint = model::Checkpoint::open(world.path("model"));
  const auto tokens = testing::counting(checkpoint.spec().vocab, 60, 9).tokens;

  const model::Model model(checkpoint.spec(), model::load_weights(checkpoint));
  kvcache::Cache cache(winnow::testing::trained_cache(checkpoint.spec()), model.cache_shape());
  winnow::testing::Runner runner(model, cache, {1, 61});
  winnow::testing::Outcome outcome;
  runner.feed_in_chunks(tokens, 7, outcome);
  const auto logits = training_logits(checkpoint, tokens);
  EXPECT_LT(winnow::testing::largest_difference(logits, outcome.logits), 1e-3F);
  EXPECT_LT(runner.sequence().live_entries(), 61 * checkpoint.spec().cached_heads())
      << "nothing was evicted";
}

// A model that learned to evict: at once, delayed, and with decisions per head or per layer.
TEST(ExportedModel, IsRunAsItWasTrained) {
  for (const char* family : {"llama", "qwen2", "qwen3"}) {
    const testing::World world(testing::tiny_config(family));
    auto all = testing::every_retrofit();
    std::ranges::copy(testing::dmc_ablations(), std::back_inserter(all));
    for (const TrainingOptions& options : all) {
      for (const int shift : {0, 1, 5}) {
        if (!options.retrofit->dmc || shift == 0) {  // DMC has no delay
          expect_run_as_trained(world, options, shift);
        }
      }
    }
  }
}

// The attention layers of hybrids are trained; recurrent ones do not change.
TEST(ExportedModel, HybridsAreRunAsTheyWereTrained) {
  auto sizes = testing::kTinySizes;
  sizes.layers = 4;
  for (const char* family : {"qwen3_next", "qwen3_5_text"}) {
    nlohmann::json keys = winnow::testing::hybrid_keys();
    keys["num_experts"] = 0;
    const testing::World world(testing::tiny_config(family, sizes, keys));
    for (const TrainingOptions& options : testing::every_retrofit()) {
      expect_run_as_trained(world, options, options.retrofit->dmc ? 0 : 1);
    }
  }
  for (const auto& [family, keys] : winnow::testing::recurrent_cousins(sizes.layers)) {
    if (keys.contains("num_experts") || keys.value("num_local_experts", 0) > 0) {
      continue;
    }
    const testing::World world(testing::tiny_config(family, sizes, keys));
    for (const TrainingOptions& options : testing::every_retrofit()) {
      expect_run_as_trained(world, options, options.retrofit->dmc ? 0 : 1);
    }
  }
}

// A latent has no channel to borrow.
TEST(ExportedModel, LatentsAreRunAsTheyWereTrained) {
  for (const auto& [family, keys] : winnow::testing::latent_families()) {
    const testing::World world(testing::tiny_config(family, testing::kTinySizes, keys));
    for (const TrainingOptions& options : testing::every_retrofit()) {
      const bool adapter = options.retrofit->dms.source == model::DmsConfig::Source::adapter;
      if (!options.retrofit->dmc && adapter) {
        expect_run_as_trained(world, options, 1);
      } else {
        EXPECT_THROW(validate(options, world.base().spec()), Error) << family;
      }
    }
  }
}

// Sliding layers are trained as well, but keep their entries; layers that share entries use the
// decisions of the layer that stores them.
TEST(ExportedModel, LayersOfTwoKindsAreRunAsTheyWereTrained) {
  auto sizes = testing::kTinySizes;
  sizes.layers = 4;
  const testing::World world(
      testing::tiny_config("gemma4_text", sizes, winnow::testing::gemma4_keys().front()));
  for (const TrainingOptions& options : testing::every_retrofit()) {
    expect_run_as_trained(world, options, options.retrofit->dmc ? 0 : 1);
  }
}

}  // namespace
}  // namespace winnow::train
