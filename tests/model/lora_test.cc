// Adapters against models with the same change merged into their weights.
#include "model/lora.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <map>

#include "base/error.h"
#include "checkpoint/checkpoint_testing.h"
#include "kvcache/sequence_cache.h"
#include "model/model.h"
#include "model/tiny_model.h"

namespace winnow::model {
namespace {

using winnow::testing::tiny_model;

constexpr std::int64_t kRank = 3;
constexpr float kLoraAlpha = 6.0F;

struct Module {
  const char* name;
  ops::Weight LayerWeights::*weight;
};
constexpr Module kModules[] = {
    {"self_attn.q_proj", &LayerWeights::query}, {"self_attn.k_proj", &LayerWeights::key},
    {"self_attn.v_proj", &LayerWeights::value}, {"self_attn.o_proj", &LayerWeights::output},
    {"mlp.gate_proj", &LayerWeights::gate},     {"mlp.up_proj", &LayerWeights::up},
    {"mlp.down_proj", &LayerWeights::down}};

class LoraTest : public ::testing::Test {
 protected:
  void SetUp() override { write_config(R"({"peft_type": "LORA", "r": 3, "lora_alpha": 6})"); }

  void write_config(const std::string& text) const {
    std::ofstream(dir_.path() / "adapter_config.json") << text;
  }

  /// Writes a random adapter for all modules, and adds its products to `weights`.
  void write_adapter(Weights& weights) {
    for (std::size_t layer = 0; layer < weights.layers.size(); ++layer) {
      for (const Module& module : kModules) {
        ops::Weight& weight = weights.layers[layer].*module.weight;
        const auto& down = add_tensor(layer, module.name, "A", {kRank, weight.cols});
        const auto& up = add_tensor(layer, module.name, "B", {weight.rows, kRank});
        auto* values = static_cast<float*>(const_cast<void*>(weight.data));
        for (std::int64_t row = 0; row < weight.rows; ++row) {
          for (std::int64_t col = 0; col < weight.cols; ++col) {
            for (std::int64_t r = 0; r < kRank; ++r) {
              values[row * weight.cols + col] +=
                  kLoraAlpha / kRank * up[static_cast<std::size_t>(row * kRank + r)] *
                  down[static_cast<std::size_t>(r * weight.cols + col)];
            }
          }
        }
      }
    }
    write();
  }

  const std::vector<float>& add_tensor(std::size_t layer, std::string_view module,
                                       std::string_view half, const Shape& shape) {
    return add_tensor(
        fmt::format("base_model.model.model.layers.{}.{}.lora_{}.weight", layer, module, half),
        shape);
  }
  const std::vector<float>& add_tensor(const std::string& name, const Shape& shape) {
    std::vector<float>& values = values_[name];
    for (std::int64_t i = 0; i < element_count(shape); ++i) {
      next_ = next_ * 1103515245 + 12345;
      values.push_back((static_cast<float>((next_ >> 16) % 256) - 128.0F) / 600.0F);
    }
    tensors_[name] = {DType::f32, shape, reinterpret_cast<const std::byte*>(values.data())};
    return values;
  }

  void write() const { write_safetensors(dir_.path() / "adapter_model.safetensors", tensors_); }

  std::string error_of_load(const ModelSpec& spec) const {
    try {
      (void)Lora::load(dir_.path(), spec);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  TempDir dir_;
  std::map<std::string, std::vector<float>> values_;
  TensorMap tensors_;
  std::uint32_t next_ = 1;
};

struct Asked {
  std::vector<std::int32_t> tokens;
  const Lora* adapter;
};

/// The logits of each sequence's last token: all prompts in one step, then one more token each.
std::vector<float> logits_of(const Model& model, const std::vector<Asked>& asked) {
  ops::Workspace workspace;
  ops::Context context{DType::f32, /*deterministic=*/true, &workspace, nullptr};
  kvcache::CacheConfig config;
  config.format = ops::EntryFormat::f32;
  kvcache::Cache cache(config, model.cache_shape());
  std::vector<kvcache::SequenceCache> sequences;
  for (const Asked& one : asked) {
    sequences.emplace_back(cache, kvcache::SequenceLimits{static_cast<int>(one.tokens.size()),
                                                          static_cast<int>(one.tokens.size()) + 8});
  }
  const auto vocab = static_cast<std::size_t>(model.spec().vocab);
  std::vector<float> logits(asked.size() * vocab);
  const std::vector<std::int32_t> more{5};
  for (const bool first : {true, false}) {
    std::vector<SequenceStep> steps;
    for (std::size_t i = 0; i < asked.size(); ++i) {
      SequenceStep step;
      step.cache = &sequences[i];
      step.tokens = first ? asked[i].tokens : more;
      step.adapter = asked[i].adapter;
      steps.push_back(step);
    }
    model.forward(context, steps, {logits.data(), asked.size(), vocab});
  }
  return logits;
}

void expect_near(std::span<const float> a, std::span<const float> b, float tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_NEAR(a[i], b[i], tolerance) << i;
  }
}

TEST_F(LoraTest, IsTheModelWithItsProductsAdded) {
  const ModelSpec spec = tiny_model(kvcache::RuleKind::dense);
  const Model plain(spec, random_weights(spec, DType::f32, 3));
  Weights weights = random_weights(spec, DType::f32, 3);
  write_adapter(weights);
  const Model merged(spec, std::move(weights));
  const auto lora = Lora::load(dir_.path(), spec);
  const std::vector<std::int32_t> prompt{1, 7, 3, 2, 9};
  const std::vector<std::int32_t> other{4, 4, 2};
  // In one step with a sequence that has no adapter.
  const std::vector<float> mixed =
      logits_of(plain, {{prompt, lora.get()}, {prompt, nullptr}, {other, lora.get()}});
  const auto vocab = static_cast<std::size_t>(spec.vocab);
  const std::vector<float> with = logits_of(merged, {{prompt, nullptr}, {other, nullptr}});
  const std::vector<float> without = logits_of(plain, {{prompt, nullptr}});
  expect_near(std::span(mixed).first(vocab), std::span(with).first(vocab), 2e-3F);
  expect_near(std::span(mixed).subspan(2 * vocab), std::span(with).subspan(vocab), 2e-3F);
  expect_near(std::span(mixed).subspan(vocab, vocab), without, 1e-4F);
  float largest = 0.0F;
  for (std::size_t i = 0; i < vocab; ++i) {
    largest = std::max(largest, std::abs(with[i] - without[i]));
  }
  EXPECT_GT(largest, 0.05F) << "the adapter changes something";
}

TEST_F(LoraTest, NamesWhatItCannotUse) {
  const ModelSpec spec = tiny_model(kvcache::RuleKind::dense);
  EXPECT_NE(error_of_load(spec).find("no adapter_model.safetensors"), std::string::npos);
  add_tensor("base_model.model.lm_head.lora_A.weight", {kRank, spec.hidden});
  write();
  EXPECT_NE(error_of_load(spec).find("lm_head.lora_A.weight\" has no place"), std::string::npos);
  tensors_.clear();
  add_tensor(0, "self_attn.q_proj", "A", {kRank, spec.hidden + 1});
  write();
  EXPECT_NE(error_of_load(spec).find(fmt::format("expected {} columns", spec.hidden)),
            std::string::npos);
  tensors_.clear();
  values_.clear();
  add_tensor(0, "self_attn.q_proj", "A", {kRank, spec.hidden});
  write();
  EXPECT_NE(error_of_load(spec).find("not of one rank"), std::string::npos);
  write_config(R"({"peft_type": "LORA", "lora_alpha": 6, "use_dora": true})");
  EXPECT_NE(error_of_load(spec).find("use_dora is true"), std::string::npos);
  write_config(R"({"peft_type": "IA3"})");
  EXPECT_NE(error_of_load(spec).find("peft_type"), std::string::npos);
}

TEST_F(LoraTest, SaysForWhichModelItWasMade) {
  const ModelSpec spec = tiny_model(kvcache::RuleKind::dense);
  add_tensor(0, "self_attn.q_proj", "A", {kRank, spec.hidden});
  add_tensor(0, "self_attn.q_proj", "B", {spec.attention().query_width(), kRank});
  write();
  EXPECT_EQ(Lora::load(dir_.path(), spec)->base_model(), "");
  write_config(
      R"({"peft_type": "LORA", "lora_alpha": 6, "base_model_name_or_path": "Qwen/Qwen3-8B"})");
  EXPECT_EQ(Lora::load(dir_.path(), spec)->base_model(), "Qwen/Qwen3-8B");
  write_config(R"({"peft_type": "LORA", "lora_alpha": 6, "base_model_name_or_path": null})");
  EXPECT_EQ(Lora::load(dir_.path(), spec)->base_model(), "");
}

TEST_F(LoraTest, TakesTheTextPartOfAModelWithOtherParts) {
  const ModelSpec spec = tiny_model(kvcache::RuleKind::dense);
  for (const char* prefix : {"model.", "model.language_model.", "language_model.model.",
                             "language_model.", "model.text_model.", ""}) {
    tensors_.clear();
    values_.clear();
    const std::string query =
        fmt::format("base_model.model.{}layers.0.self_attn.q_proj.lora_", prefix);
    add_tensor(query + "A.weight", {kRank, spec.hidden});
    add_tensor(query + "B.weight", {spec.attention().query_width(), kRank});
    add_tensor(
        "base_model.model.model.vision_tower.vision_model.encoder.layers.0.self_attn."
        "k_proj.lora_A.weight",
        {kRank, spec.hidden});
    add_tensor("base_model.model.model.visual.blocks.0.attn.qkv.lora_A.weight", {kRank, 5});
    write();
    ::testing::internal::CaptureStderr();
    const auto lora = Lora::load(dir_.path(), spec);
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_TRUE(lora->layer(0).query.has_value()) << prefix;
    EXPECT_FALSE(lora->layer(0).key.has_value()) << prefix;
    EXPECT_NE(said.find("skips 2 tensors"), std::string::npos) << said;
  }
}

TEST_F(LoraTest, RefusesOtherPartsAndTwoTensorsOfOnePlace) {
  const ModelSpec spec = tiny_model(kvcache::RuleKind::dense);
  const std::string query = "layers.0.self_attn.q_proj.lora_A.weight";
  add_tensor("base_model.model.model.decoder." + query, {kRank, spec.hidden});
  write();
  EXPECT_NE(error_of_load(spec).find("model.decoder." + query + "\" has no place"),
            std::string::npos);
  tensors_.clear();
  add_tensor("base_model.model.model." + query, {kRank, spec.hidden});
  add_tensor("base_model.model.model.language_model." + query, {kRank, spec.hidden});
  write();
  EXPECT_NE(error_of_load(spec).find(query + "\" has the place of another tensor"),
            std::string::npos);
}

}  // namespace
}  // namespace winnow::model
