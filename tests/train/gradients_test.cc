// The gradients of whole models against finite differences of their loss.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <span>

#include "base/sanitized.h"
#include "base/threads.h"
#include "train/tiny_model.h"

namespace winnow::train {
namespace {

using testing::TinyModel;

struct Case {
  std::string name;
  model::ModelSpec spec;
  DecisionPass pass;
  DecisionLoss loss;
  double step = 1e-3;   // along all parameters at once: smaller if the loss has more curvature
  double slack = 2e-2;  // along all parameters at once: error of rounding and of the step
  int singles = 4;      // parameters of each tensor that are tested alone
  double single_slack = 6e-3;
};

// The objective whose gradient a step computes. Counting decisions is straight-through, so the
// objective uses the soft ones.
double objective(TinyModel& model, const Case& c, const Batch& batch, TinyModel* teacher) {
  const double loss = model.forward_loss(batch, c.pass, teacher);
  const Decoder::Decided& decided = model.decoder.decided();
  return loss + double{c.loss.count} * decided.soft_marked + double{c.loss.excess} * decided.excess;
}

// Central differences of fourth order.
template <class Function>
double slope(const Function& value_at, double step) {
  return (8.0 * (value_at(step) - value_at(-step)) -
          (value_at(2.0 * step) - value_at(-2.0 * step))) /
         (12.0 * step);
}

void expect_gradients(const Case& c, bool distilled, Keep keep = Keep::all) {
  SCOPED_TRACE(c.name);
  constexpr std::size_t kTokens = 29;
  const Batch batch = testing::random_batch(kTokens, c.spec.vocab, {0, 6, 7}, 3);
  TinyModel model(c.spec, kTokens, keep);
  model.decoder.excess_limit = c.loss.excess_limit;
  TinyModel other(c.spec, kTokens, Keep::nothing, 2);
  TinyModel* teacher = distilled ? &other : nullptr;
  model.step(batch, c.pass, c.loss, teacher);
  const std::vector<float> gradient(model.trained().gradients().begin(),
                                    model.trained().gradients().end());
  // The parameters that the pass reads; the other arrays have the same layout.
  const std::vector<float> start(model.all.values().begin(), model.all.values().end());
  const auto values = model.all.values();

  // Along a direction through all parameters at once.
  for (const std::uint64_t seed : {5U, 6U}) {
    Random random(seed);
    std::vector<double> direction(start.size());
    std::ranges::generate(direction, [&] { return random.normal(); });
    for (const Parameter& parameter : model.all.list()) {
      if (testing::is_constant(parameter.name)) {
        std::fill_n(direction.begin() + static_cast<std::ptrdiff_t>(parameter.offset),
                    parameter.count, 0.0);
      }
    }
    const double computed =
        std::inner_product(gradient.begin(), gradient.end(), direction.begin(), 0.0);
    const double expected = slope(
        [&](double step) {
          for (std::size_t i = 0; i < start.size(); ++i) {
            values[i] = static_cast<float>(double{start[i]} + step * direction[i]);
          }
          return objective(model, c, batch, teacher);
        },
        c.step);
    EXPECT_NEAR(computed, expected, 2e-4 * std::abs(expected) + c.slack);
  }
  std::ranges::copy(start, values.begin());
  if (winnow::testing::kSanitized) {
    return;
  }

  // Single parameters, of every tensor.
  Random random(7);
  for (const Parameter& parameter : model.all.list()) {
    for (int i = 0; i < c.singles && !testing::is_constant(parameter.name); ++i) {
      const std::size_t at = parameter.offset + random.bits() % parameter.count;
      const double expected = slope(
          [&](double step) {
            values[at] = static_cast<float>(double{start[at]} + step);
            return objective(model, c, batch, teacher);
          },
          2e-3);
      values[at] = start[at];
      EXPECT_NEAR(gradient[at], expected, 2e-3 * std::abs(expected) + c.single_slack)
          << parameter.name << " at " << at - parameter.offset;
    }
  }
}

Case plain(const char* family) {
  return {"plain", testing::tiny_config(family), {}, {}};
}

Case dms(const char* family, model::DmsConfig::Source source) {
  Case c = plain(family);
  c.name = source == model::DmsConfig::Source::adapter ? "adapter" : "borrowed";
  c.spec.dms = testing::tiny_dms(source);
  c.pass = {.mode = DecisionPass::Mode::sampled, .fade = 0.0F, .tau = 1.0F, .noise = 11};
  // Without a limit, because finite differences fail at its kink (decisions_test.cc tests it).
  c.loss = {.count = 0.05F, .excess = 0.1F, .excess_limit = 0.0F};
  return c;
}

Case dmc(const char* family) {
  Case c = plain(family);
  c.name = "DMC";
  c.spec.dmc = model::DmcConfig{.offset = 0.5F};
  c.pass = {
      .mode = DecisionPass::Mode::sampled, .fade = 0.0F, .tau = 1.0F, .noise = 11, .merge_span = 5};
  c.loss = {.count = 0.05F, .excess = 0.1F, .excess_limit = 0.0F};
  return c;
}

// The retrofit of `c` on the model of `family`.
Case of_family(Case c, const Case& family) {
  const auto dms = c.spec.dms;
  const auto dmc = c.spec.dmc;
  c.name = family.name;
  c.spec = family.spec;
  c.spec.dms = dms;
  c.spec.dmc = dmc;
  c.step = family.step;
  c.slack = family.slack;
  c.singles = family.singles;
  c.single_slack = family.single_slack;
  return c;
}

TEST(Gradients, OfPlainModels) {
  for (const char* family : {"llama", "qwen2", "qwen3"}) {
    expect_gradients(plain(family), false);
    expect_gradients(plain(family), true);
  }
}

// Norms before and after with weights relative to 1, GELU, caps, multipliers, a sliding and a full
// layer, half-rotated heads.
TEST(Gradients, OfWhatPlainModelsDoNotHave) {
  const model::ModelSpec spec =
      testing::tiny_config("gemma2", testing::kTinySizes,
                           {{"layer_types", {"sliding_attention", "full_attention"}},
                            {"sliding_window", 4},
                            {"query_pre_attn_scalar", 5},
                            {"attn_logit_softcapping", 2.0},
                            {"final_logit_softcapping", 3.0}});
  Case c = plain("llama");
  c.name = "gemma2";
  c.step = 3e-4;
  c.spec = winnow::testing::half_rotated(spec);
  c.spec.layers[0].residual_multiplier = c.spec.layers[1].residual_multiplier = 0.7F;
  c.spec.logit_multiplier = 1.5F;
  expect_gradients(c, false);
  expect_gradients(c, true, Keep::inputs);
  for (const auto source :
       {model::DmsConfig::Source::adapter, model::DmsConfig::Source::borrowed}) {
    expect_gradients(of_family(dms("llama", source), c), true);
  }
}

// A squared ReLU without a gate, norms only after the parts and over all heads, layers without
// RoPE and with their own, queries that grow, multipliers.
TEST(Gradients, OfDenseCousins) {
  for (const auto& [family, keys] : winnow::testing::dense_cousins(2, 4)) {
    Case c = plain("llama");
    c.name = family;
    c.singles = 1;
    // Gemma multiplies its embeddings: a shorter step, in which rounding matters more.
    const bool is_steep = std::string_view(family) == "gemma";
    c.step = is_steep ? 2e-4 : 4e-4;
    c.slack = is_steep ? 1.2e-1 : 6e-2;
    c.spec = testing::tiny_config(family, testing::kTinySizes, keys);
    expect_gradients(c, false);
    expect_gradients(c, true, Keep::inputs);
    for (const auto source :
         {model::DmsConfig::Source::adapter, model::DmsConfig::Source::borrowed}) {
      expect_gradients(of_family(dms("llama", source), c), true);
    }
    expect_gradients(of_family(dmc("llama"), c), false);
  }
}

TEST(Gradients, OfModelsThatSlide) {
  for (const char* family : {"mistral", "ministral", "cwm"}) {
    Case c = plain("llama");
    c.name = family;
    c.singles = 1;
    c.spec = testing::tiny_config(
        family, testing::kTinySizes,
        {{"sliding_window", 4}, {"layer_types", {"sliding_attention", "full_attention"}}});
    expect_gradients(c, false);
  }
}

using CheckTraining = std::function<void(const Case&)>;

void check_distillation(const Case& c) {
  expect_gradients(c, true, Keep::inputs);
}

template <model::DmsConfig::Source kSource>
void check_dms(const Case& c) {
  expect_gradients(of_family(dms("llama", kSource), c), true);
}

void check_dmc(const Case& c) {
  expect_gradients(of_family(dmc("llama"), c), false);
}

// Checks each family as it is, and with one of the trainings: all pairs would take long.
void check_families(std::span<const winnow::testing::FamilyKeys> families, Case c,
                    std::span<const CheckTraining> trainings) {
  c.step = 4e-4;
  c.slack = 6e-2;
  for (std::size_t i = 0; i < families.size(); ++i) {
    c.name = families[i].family;
    c.spec = testing::tiny_config(families[i].family, testing::kTinySizes, families[i].keys);
    expect_gradients(c, false);
    trainings[i % trainings.size()](c);
  }
}

TEST(Gradients, OfCousinsOnTheCpu) {
  Case c = plain("llama");
  c.singles = 1;
  check_families(winnow::testing::further_cousins(), c,
                 std::array<CheckTraining, 3>{
                     check_distillation, check_dms<model::DmsConfig::Source::borrowed>, check_dmc});
}

TEST(Gradients, OfLatentAttention) {
  check_families(winnow::testing::latent_families(), plain("llama"),
                 std::array<CheckTraining, 2>{check_distillation,
                                              check_dms<model::DmsConfig::Source::adapter>});
}

// The better of two experts is used, so the loss jumps where their order changes: steps are too
// small for that. All logits are close to each other.
TEST(Gradients, OfSparseMixer) {
  Case c = plain("llama");
  c.name = "phimoe";
  c.singles = 1;
  c.step = 6e-5;
  c.slack = 4e-1;
  c.spec = testing::tiny_config("phimoe", testing::kTinySizes,
                                {{"num_local_experts", 2},
                                 {"router_jitter_noise", 1.0},
                                 {"attention_bias", true},
                                 {"lm_head_bias", true}});
  expect_gradients(c, false);
  expect_gradients(c, true, Keep::inputs);
  expect_gradients(of_family(dms("llama", model::DmsConfig::Source::borrowed), c), true);
  expect_gradients(of_family(dmc("llama"), c), false);
}

// All experts are used: where a token's choice changes, the loss jumps, and finite differences
// fail (tests/ops/cpu/experts/experts_test.cc tests choices).
TEST(Gradients, OfExperts) {
  const nlohmann::json keys = {{"num_experts", 3},
                               {"num_local_experts", 3},
                               {"num_experts_per_tok", 3},
                               {"moe_intermediate_size", 12},
                               {"shared_expert_intermediate_size", 20},
                               {"mlp_only_layers", {1}}};
  // A limit that few channels reach: finite differences fail at its kinks, too.
  const nlohmann::json of_gpt_oss = {{"swiglu_limit", 6.0}, {"sliding_window", 4}};
  for (const char* family : {"mixtral", "qwen2_moe", "qwen3_moe", "gpt_oss"}) {
    Case c = plain("llama");
    c.name = family;
    c.singles = 1;
    c.step = 3e-4;
    nlohmann::json own = keys;
    own.update(c.name == "gpt_oss" ? of_gpt_oss : nlohmann::json::object());
    c.spec = testing::tiny_config(family, testing::kTinySizes, own);
    expect_gradients(c, false);
    expect_gradients(c, true, Keep::inputs);
    expect_gradients(of_family(dms("llama", model::DmsConfig::Source::borrowed), c), true);
  }
}

// Recurrent layers with gated attention: in a plain model, and in one whose attention decides.
// All experts are used.
TEST(Gradients, OfHybrids) {
  for (const std::string family : {"qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"}) {
    const int experts = family == "qwen3_5_moe_text" ? 2 : 0;
    nlohmann::json keys = winnow::testing::hybrid_keys();
    // Norms of recalled values are steep if the values are small: large epsilon, short steps.
    keys.update({{"num_experts", experts},
                 {"num_experts_per_tok", experts},
                 {"moe_intermediate_size", 12},
                 {"shared_expert_intermediate_size", 12},
                 {"linear_key_head_dim", 8},
                 {"linear_value_head_dim", 18},
                 {"rms_norm_eps", 1e-2}});
    Case c = plain("llama");
    c.name = family;
    c.singles = 2;
    c.single_slack = 2.5e-2;
    // For slopes near 156: half the step leaves 0.2 to 0.5 of rounding, twice the step 0.3 to 1.9
    // of curvature.
    c.step = 2e-4;
    c.slack = 0.3;
    c.spec = testing::tiny_config(family, testing::kTinySizes, keys);
    expect_gradients(c, false);
    if (experts > 0) {
      continue;
    }
    expect_gradients(c, true, Keep::inputs);
    for (const auto source :
         {model::DmsConfig::Source::adapter, model::DmsConfig::Source::borrowed}) {
      expect_gradients(of_family(dms("llama", source), c), true);
    }
    expect_gradients(of_family(dmc("llama"), c), false);
  }
}

TEST(Gradients, OfOtherRecurrentLayers) {
  for (const auto& [family, keys] : winnow::testing::recurrent_cousins()) {
    Case c = plain("llama");
    c.name = family;
    c.singles = 2;
    c.step = 4e-4;
    c.slack = 6e-2;
    c.spec = testing::tiny_config(family, testing::kTinySizes, keys);
    expect_gradients(c, false);
    expect_gradients(c, true, Keep::inputs);
    for (const auto source :
         {model::DmsConfig::Source::adapter, model::DmsConfig::Source::borrowed}) {
      expect_gradients(of_family(dms("llama", source), c), true);
    }
    expect_gradients(of_family(dmc("llama"), c), false);
  }
}

// Two head sizes, layers that share entries, embeddings of each layer; keys as values, experts
// beside a dense network.
TEST(Gradients, OfGemma4) {
  for (const auto& keys : winnow::testing::gemma4_keys()) {
    Case c = plain("llama");
    c.name = "gemma4_text";
    c.singles = 1;
    // Scores of normalised heads are not scaled down, so the loss has much curvature: for slopes
    // near 150, twice the step leaves 0.8 of curvature.
    c.step = 5e-5;
    c.slack = 0.3;
    auto sizes = testing::kTinySizes;
    sizes.layers = static_cast<int>(keys["layer_types"].size());
    c.spec = testing::tiny_config("gemma4_text", sizes, keys);
    using Source = model::DmsConfig::Source;
    expect_gradients(c, false);
    expect_gradients(of_family(dms("llama", Source::borrowed), c), true, Keep::inputs);
    if (!c.spec.compressing_attention().values_are_keys) {
      expect_gradients(of_family(dms("llama", Source::adapter), c), false);
      expect_gradients(of_family(dmc("llama"), c), false, Keep::inputs);
    }
  }
}

TEST(Gradients, UnderFarDropout) {
  const FarDropout dropout{.window = 4, .share = 1.0, .mixed = 0.5, .far_heads = {{1, 0}}};
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    Case c = plain("qwen3");
    c.name = "far dropout";
    c.pass = {.noise = seed, .far_dropout = &dropout};
    expect_gradients(c, false, seed == 3 ? Keep::inputs : Keep::all);
  }
}

TEST(Gradients, OfEveryBias) {
  Case c = plain("llama");
  c.spec = testing::tiny_config("llama", testing::kTinySizes,
                                {{"attention_bias", true}, {"mlp_bias", true}});
  expect_gradients(c, false);
}

TEST(Gradients, OfAdapters) {
  for (const char* family : {"llama", "qwen2", "qwen3"}) {
    expect_gradients(dms(family, model::DmsConfig::Source::adapter), true);
  }
}

TEST(Gradients, OfBorrowedChannels) {
  for (const char* family : {"llama", "qwen2", "qwen3"}) {
    expect_gradients(dms(family, model::DmsConfig::Source::borrowed), true);
  }
}

TEST(Gradients, OfDmc) {
  for (const char* family : {"llama", "qwen2", "qwen3"}) {
    expect_gradients(dmc(family), false);
  }
  expect_gradients(dmc("llama"), true, Keep::inputs);
  Case fading = dmc("qwen3");
  fading.pass = {.mode = DecisionPass::Mode::off, .fade = 0.4F};
  fading.loss = {};
  expect_gradients(fading, true);
}

TEST(Gradients, OfDmcThatDecidesPerLayerOrNotAtAll) {
  for (const char* family : {"qwen2", "qwen3"}) {
    Case c = dmc(family);
    c.name = "DMC per layer";
    c.spec.dmc->per_layer = true;
    expect_gradients(c, false);
    c.name = "DMC, fixed pooling";
    c.spec.dmc->per_layer = false;
    c.spec.dmc->pooled = 3;
    c.loss = {};
    expect_gradients(c, false);
  }
}

TEST(Gradients, OfEveryConvention) {
  for (const model::DmsConfig::Source source :
       {model::DmsConfig::Source::adapter, model::DmsConfig::Source::borrowed}) {
    Case c = dms("qwen3", source);
    c.name = "shift 0, first channel, per layer, not cleared after RoPE";
    c.spec.dms->shift = 0;
    c.spec.dms->channel = 0;
    c.spec.dms->per_layer = true;
    c.spec.dms->rezero_after_rope = false;
    expect_gradients(c, false);
    c.name = "immediate";
    c.spec.dms->shift = 4;
    expect_gradients(c, false);
  }
}

TEST(Gradients, OfAFadingChannel) {
  for (const char* family : {"llama", "qwen3"}) {
    for (const bool rezero : {true, false}) {
      Case c = dms(family, model::DmsConfig::Source::borrowed);
      c.spec.dms->rezero_after_rope = rezero;
      c.pass = {.mode = DecisionPass::Mode::off, .fade = 0.4F};
      c.loss = {};
      expect_gradients(c, true);
    }
  }
}

TEST(Gradients, OfAModelComputedAgain) {
  expect_gradients(dms("qwen3", model::DmsConfig::Source::borrowed), true, Keep::inputs);
}

std::vector<float> gradients_of(const Case& c, std::size_t tokens, Keep keep, Trained trained,
                                DType compute = DType::f32) {
  const Batch batch = testing::random_batch(tokens, c.spec.vocab, {0, 40, 41}, 3);
  TinyModel model(c.spec, tokens, keep, 1, trained);
  model.context.compute = compute;
  model.step(batch, c.pass, c.loss);
  return {model.trained().gradients().begin(), model.trained().gradients().end()};
}

TEST(Gradients, AreTheSameBitsRecomputed) {
  const Case c = dms("qwen3", model::DmsConfig::Source::adapter);
  EXPECT_EQ(gradients_of(c, 130, Keep::all, Trained::everything),
            gradients_of(c, 130, Keep::inputs, Trained::everything));
}

TEST(Gradients, AreTheSameBitsOnAnyNumberOfThreads) {
  Case c = dms("qwen3", model::DmsConfig::Source::borrowed);
  const auto dms = c.spec.dms;
  c.spec = testing::tiny_config("qwen3", {.hidden = 384,
                                          .layers = 2,
                                          .heads = 6,
                                          .kv_heads = 2,
                                          .head_dim = 64,
                                          .intermediate = 896,
                                          .vocab = 1000,
                                          .max_positions = 128});
  c.spec.dms = dms;
  for (const DType compute : {DType::f32, DType::bf16}) {
    set_threads(1);
    const auto one = gradients_of(c, 300, Keep::inputs, Trained::everything, compute);
    for (const int threads : {2, 3, 5}) {
      set_threads(threads);
      EXPECT_EQ(one, gradients_of(c, 300, Keep::inputs, Trained::everything, compute)) << threads;
    }
  }
  set_threads(0);
}

// Frozen tensors get no gradient, and trained ones the same as without freezing.
TEST(Gradients, OfAFrozenModel) {
  const Case c = dms("llama", model::DmsConfig::Source::adapter);
  TinyModel whole(c.spec, 64, Keep::all);
  TinyModel frozen(c.spec, 64, Keep::all, 1, Trained::decisions);
  const Batch batch = testing::random_batch(64, c.spec.vocab, {0}, 3);
  whole.step(batch, c.pass, c.loss);
  frozen.step(batch, c.pass, c.loss);
  EXPECT_FALSE(frozen.trained().contains("model.norm.weight"));
  for (const Parameter& parameter : frozen.trained().list()) {
    const auto expected = whole.trained().gradients(parameter.name);
    const auto actual = frozen.trained().gradients(parameter.name);
    EXPECT_TRUE(std::ranges::equal(expected, actual)) << parameter.name;
  }
}

}  // namespace
}  // namespace winnow::train
