// A small base model and data on disk, for tests of whole runs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_testing.h"
#include "train/run.h"
#include "train/tiny_model.h"

namespace winnow::train::testing {

/// Texts that can be learned: each counts up with its own step, and repeats its first token
/// at the end.
inline Document counting(int vocab, std::size_t length, std::uint64_t seed) {
  Random random(seed);
  const auto draw = [&](int below) {
    return static_cast<std::int32_t>(random.bits() % static_cast<std::uint64_t>(below));
  };
  const std::int32_t step = 1 + draw(3);
  Document document;
  std::int32_t token = draw(vocab);
  for (std::size_t i = 0; i < length; ++i, token = (token + step) % vocab) {
    document.tokens.push_back(token);
  }
  document.tokens.push_back(document.tokens.front());
  return document;
}

/// All sides of matrices are multiples of 16, which products in fp8 need.
inline constexpr winnow::testing::Sizes kFp8Sizes{.hidden = 64,
                                                  .layers = 2,
                                                  .heads = 4,
                                                  .kv_heads = 2,
                                                  .head_dim = 16,
                                                  .intermediate = 96,
                                                  .vocab = 33,
                                                  .max_positions = 128};

class World {
 public:
  explicit World(model::ModelSpec spec = tiny_config("llama")) {
    Parameters parameters(spec, Trained::everything);
    fill_random(parameters, 1);
    TensorMap tensors;
    for (const Parameter& parameter : parameters.list()) {
      tensors[parameter.name] = parameters.view(parameter.name);
    }
    model::save_checkpoint(path("base"), spec, tensors);
    ShardWriter writer(path("data"));
    for (std::uint64_t i = 0; i < 200; ++i) {
      writer.add(counting(spec.vocab, 5 + i % 40, 100 + i));
    }
    writer.finish({});
    base_ = std::make_unique<model::Checkpoint>(model::Checkpoint::open(path("base")));
    shards_ = std::make_unique<Shards>(path("data"));
  }

  [[nodiscard]] std::filesystem::path path(const std::string& name) const {
    return directory_.path() / name;
  }
  [[nodiscard]] const model::Checkpoint& base() const { return *base_; }
  [[nodiscard]] const Shards& shards() const { return *shards_; }

 private:
  TempDir directory_;
  std::unique_ptr<model::Checkpoint> base_;
  std::unique_ptr<Shards> shards_;
};

inline TrainingOptions language_options() {
  TrainingOptions options;
  options.steps = 60;
  options.length = 32;
  options.batch = 4;
  options.micro_batch = 2;
  options.seed = 7;
  options.learning_rate = 1e-2;
  options.decision_rate = 1e-3;
  options.weight_decay = 0.1;
  options.schedule = {ScheduleKind::cosine, options.steps, 5, 0.5, 0.1};
  options.compute = DType::f32;
  return options;
}

/// Pre-training with all of its options.
inline TrainingOptions pretraining_options() {
  TrainingOptions options = language_options();
  options.muon.emplace();
  options.far_dropout = {.window = 6, .share = 0.9, .mixed = 0.3, .far_heads = {{1, 0}}};
  return options;
}

inline TrainingOptions retrofit_options(model::DmsConfig::Source source) {
  TrainingOptions options = language_options();
  options.learning_rate = 1e-3;
  options.weight_decay = 0.0;
  auto& retrofit = options.retrofit.emplace();
  retrofit.dms.window = 4;
  retrofit.dms.source = source;
  retrofit.fade_steps = source == model::DmsConfig::Source::borrowed ? 10 : 0;
  retrofit.ramp = {RampKind::parabola, 3.0, 20};
  return options;
}

/// Running averages as long as any text here, so that training and the engine compute the same.
inline TrainingOptions dmc_options() {
  TrainingOptions options = retrofit_options(model::DmsConfig::Source::borrowed);
  // A channel of 8 after k-norm is at most sqrt(8): it could never reach the usual offset of 5.
  options.retrofit->dmc.emplace().offset = 1.0F;
  options.retrofit->final_offset = 1.0F;
  options.retrofit->merge_span = 32;
  return options;
}

/// DMC with one decision per layer (DMC-HardC), equal shares per head (DMC-C), or fixed pooling.
inline std::vector<TrainingOptions> dmc_ablations() {
  TrainingOptions hard = dmc_options();
  hard.retrofit->dmc->per_layer = true;
  TrainingOptions alike = dmc_options();
  alike.retrofit->spread_weight = 5.0;
  TrainingOptions pooled = dmc_options();
  pooled.retrofit->dmc->pooled = 3;
  pooled.retrofit->excess = 0.0;
  return {hard, alike, pooled};
}

/// One run for each retrofitting method.
inline std::vector<TrainingOptions> every_retrofit() {
  return {retrofit_options(model::DmsConfig::Source::borrowed),
          retrofit_options(model::DmsConfig::Source::adapter), dmc_options()};
}

}  // namespace winnow::train::testing
