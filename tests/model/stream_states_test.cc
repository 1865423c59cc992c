// The states between layers that a step hands out.
#include "model/stream_states.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "model/model.h"
#include "model/tiny_model.h"
#include "ops/linear.h"
#include "ops/norm.h"

namespace winnow::testing {
namespace {

using Tokens = std::vector<std::int32_t>;

// A model with random weights, of which each layer has the same whatever their number.
class Layers {
 public:
  explicit Layers(int layers)
      : spec_(tiny_model(kvcache::RuleKind::dense, {.layers = layers})),
        model_(spec_, model::random_weights(spec_, DType::f32, 7)) {
    context_.compute = DType::f32;
    context_.deterministic = true;
    context_.workspace = &workspace_;
  }

  [[nodiscard]] const model::Model& model() const { return model_; }
  [[nodiscard]] ops::Context& context() { return context_; }

  // Takes tokens in chunks beside another sequence; returns their states after some layers, or
  // without any the logits.
  std::vector<float> take(const Tokens& tokens, const std::vector<std::size_t>& chunks,
                          const std::vector<int>& after) {
    kvcache::CacheConfig config;
    config.format = ops::EntryFormat::f32;
    config.max_bytes = std::size_t{1} << 24;
    kvcache::Cache cache(config, model_.cache_shape());
    kvcache::SequenceCache other(cache, {});
    kvcache::SequenceCache sequence(cache, {});
    const std::size_t width = after.empty() ? static_cast<std::size_t>(spec_.vocab)
                                            : after.size() * static_cast<std::size_t>(spec_.hidden);
    std::vector<float> result(tokens.size() * width);
    std::size_t first = 0;
    for (const std::size_t count : chunks) {
      const Tokens beside{1, 2, 3};
      const ops::Matrix<float> rows(result.data() + first * width, count, width);
      std::vector<model::SequenceStep> steps(2);
      steps[0] = {&other, beside, 0, {}};
      steps[1] = {
          &sequence, std::span(tokens).subspan(first, count), after.empty() ? count : 0, {}};
      if (!after.empty()) {
        steps[1].stream = {after, rows};
      }
      model_.forward(context_, steps, after.empty() ? rows : ops::Matrix<float>());
      first += count;
    }
    return result;
  }

  // The logits of the last three tokens and the last one's state, behind logits of a sequence that
  // hands out nothing.
  std::vector<float> step(const Tokens& tokens, const std::vector<int>& after) {
    kvcache::CacheConfig config;
    config.format = ops::EntryFormat::f32;
    config.max_bytes = std::size_t{1} << 24;
    kvcache::Cache cache(config, model_.cache_shape());
    kvcache::SequenceCache other(cache, {});
    kvcache::SequenceCache sequence(cache, {});
    const Tokens beside{1, 2, 3};
    const auto vocab = static_cast<std::size_t>(spec_.vocab);
    const auto hidden = static_cast<std::size_t>(spec_.hidden);
    std::vector<float> result(5 * vocab + hidden);
    std::vector<float> states(tokens.size() * hidden);
    std::vector<model::SequenceStep> steps(2);
    steps[0] = {&sequence, tokens, 3, {}};
    steps[0].state = {result.data() + 5 * vocab, hidden};
    steps[1] = {&other, beside, 2, {}};
    if (!after.empty()) {
      steps[0].stream = {after, {states.data(), tokens.size(), hidden}};
    }
    model_.forward(context_, steps, {result.data(), 5, vocab});
    return result;
  }

 private:
  model::ModelSpec spec_;
  model::Model model_;
  ops::Workspace workspace_;
  ops::Context context_;
};

const Tokens kTokens{5, 60, 5, 17, 33, 2, 40};

// Logits of states, which a final norm has or not.
std::vector<float> logits_of(Layers& layers, ops::Matrix<const float> states, bool normed) {
  const model::Weights& weights = layers.model().weights();
  std::vector<float> values(states.rows * states.cols);
  const ops::Matrix<float> rows(values.data(), states.rows, states.cols);
  for (std::size_t t = 0; t < states.rows; ++t) {
    std::ranges::copy(states.row(t), rows.row(t).begin());
  }
  if (!normed) {
    ops::rms_norm(rows, states, weights.norm, layers.model().spec().final_norm.eps);
  }
  const auto vocab = static_cast<std::size_t>(layers.model().vocab());
  std::vector<float> logits(states.rows * vocab);
  ops::linear(layers.context(), {logits.data(), rows.rows, vocab}, rows, weights.head);
  return logits;
}

TEST(StreamStates, AreWhatAModelOfSoManyLayersEndsWith) {
  Layers whole(3);
  const std::vector<int> after{0, 1, 2, 3, 4};
  const std::vector<float> states = whole.take(kTokens, {kTokens.size()}, after);
  const auto hidden = static_cast<std::size_t>(whole.model().spec().hidden);
  for (const std::size_t place : {1, 2, 3, 4}) {  // the last one is behind the final norm
    Layers part(std::min(after[place], 3));
    const std::vector<float> expected = part.take(kTokens, {kTokens.size()}, {});
    const std::vector<float> logits = logits_of(
        part, {states.data() + hidden * place, kTokens.size(), hidden, after.size() * hidden},
        place == 4);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      EXPECT_NEAR(logits[i], expected[i], 1e-4) << place << ' ' << i;
    }
  }
  std::vector<float> embedding(hidden);
  ops::dequantize_row(whole.model().weights().embedding, kTokens[1], embedding.data());
  EXPECT_TRUE(
      std::equal(embedding.begin(), embedding.end(), states.begin() + after.size() * hidden));
}

TEST(StreamStates, DoNotDependOnChunks) {
  Layers layers(3);
  for (const std::vector<int>& after : {std::vector{2, 0}, std::vector{3}, std::vector{4, 1}}) {
    EXPECT_EQ(layers.take(kTokens, {1, 3, 1, 2}, after), layers.take(kTokens, {7}, after));
  }
}

// Nor do logits and states of a step depend on which states it hands out.
TEST(StreamStates, ChangeNoLogits) {
  Layers layers(2);
  const auto plain = layers.step(kTokens, {});
  for (const int after : {1, 2, 3}) {
    EXPECT_EQ(layers.step(kTokens, {after}), plain) << after;
  }
}

}  // namespace
}  // namespace winnow::testing
