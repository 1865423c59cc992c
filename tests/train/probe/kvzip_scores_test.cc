// The scores against a reference that writes out the definition, one number at a time.
#include "train/probe/kvzip_scores.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/threads.h"
#include "engine/cpu_runner.h"
#include "engine/options.h"
#include "model/spec_of.h"

namespace winnow::train {
namespace {

struct OwnMatrix {
  explicit OwnMatrix(ops::Matrix<const float> x) : rows(x.rows), cols(x.cols) {
    for (std::size_t t = 0; t < x.rows; ++t) {
      numbers.insert(numbers.end(), x.row(t).begin(), x.row(t).end());
    }
  }
  [[nodiscard]] double at(std::size_t t, std::size_t i) const { return numbers[t * cols + i]; }
  [[nodiscard]] ops::Matrix<const float> view() const { return {numbers.data(), rows, cols}; }

  std::size_t rows;
  std::size_t cols;
  std::vector<float> numbers;
};

// What a layer's attention took.
struct SeenLayer {
  explicit SeenLayer(const model::AttentionInputs& inputs)
      : hidden(inputs.hidden), queries(inputs.queries), keys(inputs.keys), values(inputs.values) {}
  [[nodiscard]] model::AttentionInputs inputs() const {
    return {.hidden = hidden.view(),
            .queries = queries.view(),
            .keys = keys.view(),
            .values = values.view()};
  }
  OwnMatrix hidden;
  OwnMatrix queries;
  OwnMatrix keys;
  OwnMatrix values;
};

std::vector<SeenLayer> run_over(const model::Model& model, std::span<const std::int32_t> tokens) {
  engine::EngineConfig config;
  config.cache.max_bytes = std::size_t{1} << 26;
  config.cache.format = ops::EntryFormat::f32;
  config.compute = DType::f32;
  const auto count = static_cast<int>(tokens.size());
  const engine::CpuBackend backend(model);
  const auto runner = backend.make_runner(config, count);
  const auto sequence = runner->open({.prompt_tokens = count, .total_tokens = count});
  std::vector<SeenLayer> layers;
  const model::AttentionListener listener = [&](const model::AttentionInputs& inputs) {
    EXPECT_EQ(inputs.layer, static_cast<int>(layers.size()));
    layers.emplace_back(inputs);
  };
  engine::SequenceShare share{
      .sequence = sequence.get(), .tokens = tokens, .logit_rows = 0, .visible = {}};
  share.listener = &listener;
  runner->forward(std::span(&share, 1), {}, {});
  return layers;
}

std::vector<double> product(const ops::Weight& weight, const std::vector<double>& x) {
  std::vector<double> result;
  std::vector<float> row(static_cast<std::size_t>(weight.cols));
  for (std::int64_t r = 0; r < weight.rows; ++r) {
    ops::dequantize_row(weight, r, row.data());
    double sum = 0.0;
    for (std::size_t i = 0; i < row.size(); ++i) {
      sum += row[i] * x[i];
    }
    result.push_back(sum);
  }
  return result;
}

double norm(const std::vector<double>& x) {
  double squares = 0.0;
  for (const double value : x) {
    squares += value * value;
  }
  return std::sqrt(squares);
}

// The definition in kvzip_scores.h. Values follow from the hidden state, so that it is what the
// attention reads.
class Reference {
 public:
  Reference(const model::Model& model, const SeenLayer& layer, int index)
      : attention_(*model.spec().layer(index).attention()),
        weights_(model.weights().layers[static_cast<std::size_t>(index)]),
        layer_(layer) {}

  [[nodiscard]] double score(const Repetition& repetition, std::size_t entry, int kv_head) const {
    double most = 0.0;
    for (int head = kv_head * attention_.group(); head < (kv_head + 1) * attention_.group();
         ++head) {
      for (std::size_t j = repetition.again; j < repetition.again + repetition.length; ++j) {
        const double importance =
            weight(head, j, entry) * contribution(head, entry) / norm(hidden(j));
        most = std::max(most, importance);
      }
    }
    return std::log(most);
  }

 private:
  [[nodiscard]] std::vector<double> hidden(std::size_t token) const {
    std::vector<double> x;
    for (std::size_t i = 0; i < layer_.hidden.cols; ++i) {
      x.push_back(layer_.hidden.at(token, i));
    }
    return x;
  }

  // |W_g v_i|: the head's value alone in the attention output.
  [[nodiscard]] double contribution(int head, std::size_t entry) const {
    const auto width = static_cast<std::size_t>(attention_.value_dim);
    const std::vector<double> values = product(weights_.value, hidden(entry));
    std::vector<double> attended(static_cast<std::size_t>(weights_.output.cols));
    for (std::size_t i = 0; i < width; ++i) {
      const std::size_t from = static_cast<std::size_t>(head / attention_.group()) * width + i;
      attended[static_cast<std::size_t>(head) * width + i] =
          values[from] + (weights_.value_bias.empty() ? 0.0F : weights_.value_bias[from]);
    }
    return norm(product(weights_.output, attended));
  }

  [[nodiscard]] double logit(int head, std::size_t query, std::size_t key) const {
    const auto heads = static_cast<std::size_t>(attention_.heads);
    const std::size_t width = layer_.queries.cols / heads;
    double sum = 0.0;
    for (std::size_t i = 0; i < width; ++i) {
      sum += layer_.queries.at(query, static_cast<std::size_t>(head) * width + i) *
             layer_.keys.at(key, static_cast<std::size_t>(head / attention_.group()) * width + i);
    }
    sum *= attention_.scale;
    const double cap = attention_.soft_cap;
    return cap > 0.0 ? cap * std::tanh(sum / cap) : sum;
  }

  [[nodiscard]] double weight(int head, std::size_t query, std::size_t key) const {
    double sum = 0.0;
    for (std::size_t i = 0; i <= query; ++i) {
      sum += std::exp(logit(head, query, i));
    }
    if (!weights_.sinks.empty()) {
      sum += std::exp(weights_.sinks[static_cast<std::size_t>(head)]);
    }
    return std::exp(logit(head, query, key)) / sum;
  }

  const model::AttentionSpec& attention_;
  const model::LayerWeights& weights_;
  const SeenLayer& layer_;
};

Repetition some_repetition() {
  Repetition repetition{.text = 2, .length = 9};
  for (int i = 0; i < 24; ++i) {  // 2 tokens, the text, 3 tokens, the text, a token
    repetition.tokens.push_back((7 * i * i + 3 * i) % 61);
  }
  repetition.again = repetition.text + repetition.length + 3;
  for (std::size_t i = 0; i < repetition.length; ++i) {
    repetition.tokens[repetition.again + i] = repetition.tokens[repetition.text + i];
  }
  return repetition;
}

TEST(KvzipScores, AreTheirDefinition) {
  const nlohmann::json capped = {
      {"attn_logit_softcapping", 0.5}, {"query_pre_attn_scalar", 2}, {"sliding_window", 4}};
  const nlohmann::json sinks = {{"num_local_experts", 2},
                                {"num_experts_per_tok", 2},
                                {"sliding_window", 4},
                                {"layer_types", {"full_attention", "full_attention"}}};
  set_threads(2);
  for (const auto& [family, keys] : std::initializer_list<winnow::testing::FamilyKeys>{
           {"llama", {}}, {"qwen2", {}}, {"olmo2", {}}, {"gemma2", capped}, {"gpt_oss", sinks}}) {
    for (const int head_dim : {8, 4}) {  // 4: the cache has wider heads
      SCOPED_TRACE(fmt::format("{}, {}", family, head_dim));
      int compared = 0;
      const model::ModelSpec spec = winnow::testing::spec_of(
          family, {.head_dim = head_dim}, keys.is_null() ? nlohmann::json::object() : keys);
      const model::Model model(spec, model::random_weights(spec, DType::f32, 3));
      const Repetition repetition = some_repetition();
      const std::vector<SeenLayer> layers = run_over(model, repetition.tokens);
      ASSERT_EQ(layers.size(), 2U);
      ops::Workspace workspace;
      ops::Context context{.compute = DType::f32, .workspace = &workspace};
      for (int index = 0; index < 2; ++index) {
        const SeenLayer& layer = layers[static_cast<std::size_t>(index)];
        if (!spec.layer(index).compresses()) {
          continue;
        }
        const KvzipScorer scorer(*spec.layer(index).attention(),
                                 model.weights().layers[static_cast<std::size_t>(index)]);
        std::vector<float> scores(repetition.length * 2);
        const ops::Matrix<float> out(scores.data(), repetition.length, 2);
        scorer.score(context, layer.inputs(), repetition, out);
        ++compared;
        const Reference reference(model, layer, index);
        for (std::size_t i = 0; i < repetition.length; ++i) {
          for (int head = 0; head < 2; ++head) {
            EXPECT_NEAR(out.row(i)[static_cast<std::size_t>(head)],
                        reference.score(repetition, repetition.text + i, head), 1e-3)
                << index << ", " << i << ", " << head;
          }
        }
      }
      EXPECT_GE(compared, 1);
    }
  }
  set_threads(1);
}

}  // namespace
}  // namespace winnow::train
