// The states between layers that a step hands out.
#include "model/stream_states.h"

#include <gtest/gtest.h>

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

 private:
  model::ModelSpec spec_;
  model::Model model_;
  ops::Workspace workspace_;
  ops::Context context_;
};

const Tokens kTokens{5, 60, 5, 17, 33, 2, 40};

TEST(StreamStates, AreWhatAModelOfSoManyLayersEndsWith) {
  Layers whole(3);
  const std::vector<float> states = whole.take(kTokens, {kTokens.size()}, {0, 1, 2});
  const auto hidden = static_cast<std::size_t>(whole.model().spec().hidden);
  for (const int layers : {1, 2}) {
    Layers part(layers);
    const std::vector<float> expected = part.take(kTokens, {kTokens.size()}, {});
    const ops::Matrix<const float> ends(states.data() + hidden * static_cast<std::size_t>(layers),
                                        kTokens.size(), hidden, 3 * hidden);
    std::vector<float> normed(kTokens.size() * hidden);
    const ops::Matrix<float> rows(normed.data(), kTokens.size(), hidden);
    ops::rms_norm(rows, ends, part.model().weights().norm, part.model().spec().final_norm.eps);
    std::vector<float> logits(expected.size());
    ops::linear(part.context(),
                ops::Matrix<float>(logits.data(), rows.rows, logits.size() / rows.rows), rows,
                part.model().weights().head);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      EXPECT_NEAR(logits[i], expected[i], 1e-4) << layers << ' ' << i;
    }
  }
  std::vector<float> embedding(hidden);
  ops::dequantize_row(whole.model().weights().embedding, kTokens[1], embedding.data());
  EXPECT_TRUE(std::equal(embedding.begin(), embedding.end(), states.begin() + 3 * hidden));
}

TEST(StreamStates, DoNotDependOnChunks) {
  Layers layers(3);
  EXPECT_EQ(layers.take(kTokens, {1, 3, 1, 2}, {2, 0}), layers.take(kTokens, {7}, {2, 0}));
}

}  // namespace
}  // namespace winnow::testing
