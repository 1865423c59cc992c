// The rows of a mixer's projections on a device, against the CPU's split of the products.
#include "model/cuda/mixer_rows.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "model/mixer_parts.h"
#include "model/model.h"
#include "model/spec_of.h"

namespace winnow::model::cuda {
namespace {

std::size_t size_of(int count) {
  return static_cast<std::size_t>(count);
}

// The products of the rows with unit vectors, [cols, rows].
struct Products {
  std::vector<float> values;
  ops::Matrix<float> view;
};

Products products_of(std::span<const ops::Weight> parts) {
  std::size_t rows = 0;
  for (const ops::Weight& part : parts) {
    rows += static_cast<std::size_t>(part.rows);
  }
  const auto cols = static_cast<std::size_t>(parts.front().cols);
  Products result{std::vector<float>(rows * cols), {}};
  result.view = {result.values.data(), cols, rows};
  std::vector<float> row(cols);
  std::size_t at = 0;
  for (const ops::Weight& part : parts) {
    for (std::int64_t i = 0; i < part.rows; ++i, ++at) {
      ops::dequantize_row(part, i, row.data());
      for (std::size_t t = 0; t < cols; ++t) {
        result.view.row(t)[at] = row[t];
      }
    }
  }
  return result;
}

Products empty(std::size_t rows, int cols) {
  Products result{std::vector<float>(rows * size_of(cols)), {}};
  result.view = {result.values.data(), rows, size_of(cols)};
  return result;
}

ModelSpec hybrid(const char* family) {
  nlohmann::json keys = winnow::testing::hybrid_keys();
  keys["linear_num_key_heads"] = 2;
  keys["linear_num_value_heads"] = 4;
  keys["linear_value_head_dim"] = 16;
  keys["num_experts"] = 0;
  keys["attention_bias"] = true;
  return winnow::testing::spec_of(family, {.hidden = 64, .intermediate = 64}, keys);
}

TEST(MixerRows, AreThePartsOfJoinedProjections) {
  const ModelSpec spec = hybrid("qwen3_next");
  const RecurrentSpec& mixer = *spec.recurrent();
  for (const auto format :
       {std::optional<ops::WeightFormat>(), std::optional(ops::WeightFormat::int8),
        std::optional(ops::WeightFormat::int4)}) {
    const Weights weights = random_weights(spec, DType::bf16, 5, format);
    const LayerWeights& layer = weights.layers.front();
    ASSERT_NE(layer.recurrent.input.data, nullptr);
    const MixerRows rows = mixer_rows(spec, 0, layer);
    const Products all = products_of(std::span(&layer.recurrent.input, 1));
    const Products small = products_of(std::span(&layer.recurrent.rate, 1));
    const Products input = empty(all.view.rows, mixer.channels());
    const Products gates = empty(all.view.rows, mixer.heads.value_width());
    const Products rates = empty(all.view.rows, mixer.heads.value_heads);
    const Products decays = empty(all.view.rows, mixer.heads.value_heads);
    split_recurrent(mixer.heads, all.view, small.view,
                    {input.view, gates.view, rates.view, decays.view});
    EXPECT_EQ(products_of(rows.qkv).values, input.values);
    EXPECT_EQ(products_of(rows.output_gate).values, gates.values);
    const Products both = products_of(rows.gates);
    for (std::size_t t = 0; t < both.view.rows; ++t) {
      for (int h = 0; h < mixer.heads.value_heads; ++h) {
        EXPECT_EQ(both.view.row(t)[size_of(h)], rates.view.row(t)[size_of(h)]);
        EXPECT_EQ(both.view.row(t)[size_of(mixer.heads.value_heads + h)],
                  decays.view.row(t)[size_of(h)]);
      }
    }
  }
}

TEST(MixerRows, HaveOutputGatesBehindAllQueries) {
  const ModelSpec spec = hybrid("qwen3_5_text");
  const AttentionSpec& attention = *spec.layer(1).attention();
  const Weights weights = random_weights(spec, DType::bf16, 5, ops::WeightFormat::int8);
  const LayerWeights& layer = weights.layers[1];
  const MixerRows rows = mixer_rows(spec, 1, layer);
  const Products joined = products_of(std::span(&layer.query, 1));
  const Products queries = empty(joined.view.rows, attention.query_width());
  const Products gates = empty(joined.view.rows, attention.query_width());
  split_output_gates(attention.head_dim, joined.view, queries.view, gates.view);
  const Products qkv = products_of(rows.qkv);
  for (std::size_t t = 0; t < qkv.view.rows; ++t) {
    for (std::size_t i = 0; i < queries.view.cols; ++i) {
      EXPECT_EQ(qkv.view.row(t)[i], queries.view.row(t)[i]);
    }
  }
  EXPECT_EQ(products_of(rows.output_gate).values, gates.values);

  Products bias{layer.query_bias, {}};
  bias.view = {bias.values.data(), 1, bias.values.size()};
  const Products query_bias = empty(1, attention.query_width());
  const Products gate_bias = empty(1, attention.query_width());
  split_output_gates(attention.head_dim, bias.view, query_bias.view, gate_bias.view);
  const auto joined_bias = [](const std::vector<std::span<const float>>& parts) {
    std::vector<float> all;
    for (const auto& part : parts) {
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  };
  EXPECT_EQ(joined_bias(rows.output_gate_bias), gate_bias.values);
  std::vector<float> all = query_bias.values;
  all.insert(all.end(), layer.key_bias.begin(), layer.key_bias.end());
  all.insert(all.end(), layer.value_bias.begin(), layer.value_bias.end());
  EXPECT_EQ(joined_bias(rows.qkv_bias), all);
}

}  // namespace
}  // namespace winnow::model::cuda
