#include "engine/calibrate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "base/threads.h"
#include "checkpoint/checkpoint_testing.h"
#include "engine/calibration_file.h"
#include "engine/cpu_runner.h"
#include "engine/engine_world.h"
#include "model/spec_of.h"

namespace winnow::engine {
namespace {

std::vector<std::int32_t> some_tokens(int count) {
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < count; ++i) {
    tokens.push_back((i * i + 3 * i) % 61);
  }
  return tokens;
}

kvcache::Calibration calibrated_on(const model::Model& model, std::span<const std::int32_t> tokens,
                                   int chunk) {
  set_threads(1);
  EngineConfig config;
  config.cache.max_bytes = testing::kMuchMemory;
  config.cache.format = ops::EntryFormat::f32;
  config.compute = DType::f32;
  config.step_tokens = chunk;
  return calibrate(CpuBackend(model), config, tokens);
}

// A query of the first layer, which follows from the embedding alone.
std::vector<double> first_query(const model::Model& model, std::int32_t token) {
  const auto hidden = static_cast<std::size_t>(model.spec().hidden);
  const model::LayerWeights& layer = model.weights().layers[0];
  std::vector<float> x(hidden);
  ops::dequantize_row(model.weights().embedding, token, x.data());
  double squares = 0.0;
  for (const float value : x) {
    squares += double{value} * value / static_cast<double>(hidden);
  }
  const double scale = 1.0 / std::sqrt(squares + double{model.spec().layer(0).norm.eps});
  std::vector<double> query;
  std::vector<float> row(hidden);
  for (int channel = 0; channel < static_cast<int>(layer.query.rows); ++channel) {
    ops::dequantize_row(layer.query, channel, row.data());
    double sum = 0.0;
    for (std::size_t i = 0; i < hidden; ++i) {
      sum += double{row[i]} * x[i] * scale * layer.attention_norm[i];
    }
    if (!layer.query_bias.empty()) {
      sum += layer.query_bias[static_cast<std::size_t>(channel)];
    }
    query.push_back(sum);
  }
  return query;
}

TEST(Calibrate, AveragesQueriesAsTheyWereBeforeRope) {
  // RoPE rotates all channels of a head, in halves; or its first half, interleaved.
  for (const std::string family : {"llama", "glm"}) {
    SCOPED_TRACE(family);
    const model::ModelSpec spec =
        winnow::testing::spec_of(family, {}, {{"partial_rotary_factor", 0.5}});
    const model::Model model(spec, model::random_weights(spec, DType::f32, 5));
    const auto tokens = some_tokens(70);
    const kvcache::CacheShape shape = model.cache_shape();
    const kvcache::LayerRope& rope = shape.rope_of(0);
    const std::size_t planes = kvcache::plane_count(shape, 0);
    const std::size_t dim = 8;
    std::vector<double> means(4 * dim);
    std::vector<double> lengths(4 * planes);
    for (const std::int32_t token : tokens) {
      const auto query = first_query(model, token);
      ASSERT_EQ(query.size(), means.size());
      for (std::size_t i = 0; i < query.size(); ++i) {
        means[i] += query[i] / 70.0;
      }
      for (std::size_t i = 0; i < lengths.size(); ++i) {
        const std::size_t plane = i % planes;
        const double* head = &query[i / planes * dim];
        const std::size_t turned = rope.frequencies.size();
        const std::size_t a = rope.interleaved ? 2 * plane : plane;
        const std::size_t b = rope.interleaved ? a + 1 : a + turned;
        lengths[i] +=
            (plane < turned ? std::hypot(head[a], head[b]) : std::abs(head[plane + turned])) / 70.0;
      }
    }
    const kvcache::Calibration found = calibrated_on(model, tokens, 100);
    ASSERT_EQ(found.layers.size(), 2U);
    ASSERT_EQ(found.layers[0].lengths.size(), lengths.size());
    for (std::size_t i = 0; i < means.size(); ++i) {
      EXPECT_NEAR(found.layers[0].means[i], means[i], 1e-4 * (1.0 + std::abs(means[i]))) << i;
    }
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      EXPECT_NEAR(found.layers[0].lengths[i], lengths[i], 1e-4 * (1.0 + lengths[i])) << i;
    }
  }
}

TEST(Calibrate, StepsChangeNothing) {
  for (const auto kind : {winnow::testing::Recurrent{},
                          winnow::testing::Recurrent{model::RecurrentSpec::Kind::delta_net}}) {
    const model::Model& model = testing::model_for(kvcache::RuleKind::dense, DType::f32, kind);
    const auto tokens = some_tokens(50);
    const auto whole = calibrated_on(model, tokens, 100);
    const auto cut = calibrated_on(model, tokens, 7);
    ASSERT_EQ(whole.layers.size(), static_cast<std::size_t>(model.cache_shape().layers));
    for (std::size_t layer = 0; layer < whole.layers.size(); ++layer) {
      for (std::size_t i = 0; i < whole.layers[layer].means.size(); ++i) {
        EXPECT_NEAR(cut.layers[layer].means[i], whole.layers[layer].means[i], 1e-4);
      }
    }
  }
}

TEST(CalibrationFile, KeepsEveryBit) {
  const TempDir folder;
  const kvcache::CacheShape shape =
      testing::model_for(kvcache::RuleKind::dense, DType::f32).cache_shape();
  const auto written = winnow::testing::any_calibration(shape);
  write_calibration(folder.path() / "c.safetensors", *written, shape);
  const auto read = read_calibration(folder.path() / "c.safetensors", shape);
  ASSERT_EQ(read.layers.size(), written->layers.size());
  for (std::size_t layer = 0; layer < read.layers.size(); ++layer) {
    EXPECT_EQ(read.layers[layer].means, written->layers[layer].means);
    EXPECT_EQ(read.layers[layer].lengths, written->layers[layer].lengths);
  }
}

TEST(CalibrationFile, IsOfTheModel) {
  const TempDir folder;
  const auto file = folder.path() / "c.safetensors";
  const auto shape_of = [](const winnow::testing::Sizes& sizes) {
    return model::cache_shape(winnow::testing::spec_of("llama", sizes));
  };
  const auto error_with = [&](const kvcache::CacheShape& shape) -> std::string {
    try {
      read_calibration(file, shape);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_NE(error_with(shape_of({})).find(file.string()), std::string::npos);  // no such file
  write_calibration(file, *winnow::testing::any_calibration(shape_of({})), shape_of({}));
  EXPECT_EQ(error_with(shape_of({})), "no error");
  EXPECT_EQ(error_with(shape_of({.layers = 8})),
            file.string() +
                ": 4 tensors, but statistics of the model's 8 layers are 16: winnow "
                "calibrate makes them for the model");
  EXPECT_EQ(error_with(shape_of({.head_dim = 16})),
            file.string() +
                ": layers.0.query_means is fp32 [4, 8], but the model needs fp32 [4, "
                "16]: winnow calibrate makes it for the model");
}

// Replaces a number that occurs once in the file by NaN.
void write_nan(const std::filesystem::path& file, float number) {
  std::ifstream in(file, std::ios::binary);
  std::string bytes(std::istreambuf_iterator<char>(in), {});
  const auto as_bytes = [](float value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof value);
  };
  const std::size_t at = bytes.find(as_bytes(number));
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at, sizeof number, as_bytes(NAN));
  std::ofstream(file, std::ios::binary) << bytes;
}

TEST(CalibrationFile, HoldsNumbers) {
  const TempDir folder;
  const kvcache::CacheShape shape =
      testing::model_for(kvcache::RuleKind::dense, DType::f32).cache_shape();
  kvcache::Calibration calibration = *winnow::testing::any_calibration(shape);
  const auto file = folder.path() / "c.safetensors";
  const auto expect_refusal = [&](const std::function<void()>& act) {
    try {
      act();
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), file.string() + ": layer 1 has statistics that are no numbers");
    }
  };
  float& number = calibration.layers[1].means[3];
  number = 12345.678F;
  write_calibration(file, calibration, shape);
  write_nan(file, number);
  expect_refusal([&] { read_calibration(file, shape); });
  number = NAN;
  expect_refusal([&] { write_calibration(file, calibration, shape); });
}

}  // namespace
}  // namespace winnow::engine
