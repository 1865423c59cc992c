// Products in fp8 compared with those in bf16, for the matrices of whole models.
#include "train/cuda/products.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/cuda/training/training_ops_testing.h"
#include "train/cuda/training_cases.h"

namespace winnow::train::cuda {
namespace {

using ops::cuda::testing::download;
using ops::cuda::testing::draw;
using ops::cuda::testing::poisoned;
using ops::cuda::testing::upload;
using ops::cuda::testing::upload_bf16;
using winnow::cuda::DeviceBuffer;

constexpr int kTokens = 48;

class CudaFp8Products : public ::testing::Test {
 protected:
  void SetUp() override {
    if (winnow::cuda::device_count() == 0 || !ops::cuda::has_fp8_products()) {
      GTEST_SKIP() << "no CUDA device that multiplies in fp8";
    }
  }
};

TrainingOptions options_with(model::DmsConfig::Source source) {
  TrainingOptions options;
  options.length = kTokens;
  options.fp8_products = true;
  options.retrofit.emplace().dms.source = source;
  return options;
}

// Layers with random matrices.
class Layers {
 public:
  Layers(const model::ModelSpec& spec, std::uint64_t seed) : seed_(seed) {
    weights.layers.resize(spec.layers.size());
    for (DeviceLayerWeights& layer : weights.layers) {
      layer.query =
          matrix(spec.hidden * (spec.attention().query_width() + 2 * spec.attention().key_width()));
      layer.output = matrix(spec.hidden * spec.attention().output_width());
      layer.gate = matrix(2 * spec.hidden * spec.dense_width());
      layer.down = matrix(spec.hidden * spec.dense_width());
    }
  }

  DeviceWeights weights{};
  std::vector<DeviceBuffer<bf16>> matrices;

 private:
  const bf16* matrix(int count) {
    matrices.push_back(upload_bf16(draw(static_cast<std::size_t>(count), ++seed_)));
    return matrices.back().data();
  }

  std::uint64_t seed_;
};

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double difference = 0.0;
  double norm = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(double{a[i]} - double{b[i]}, 2.0);
    norm += std::pow(double{b[i]}, 2.0);
  }
  return std::sqrt(difference / norm);
}

// e4m3 has 3 bits: each operand is off by 2.6 % on average, a product of two by 3.7 %.
void expect_fp8(const std::vector<float>& found, const std::vector<float>& in_bf16,
                const char* what) {
  EXPECT_LT(distance(found, in_bf16), 0.05) << what;
  EXPECT_GT(distance(found, in_bf16), 0.01) << what << ": was it in fp8?";
}

struct Matrix {
  const bf16* values;
  int outputs;
  int inputs;
};

// multiply(products, y) writes `count` numbers.
template <class Number, class Multiply>
void expect_same(Products& fp8, std::size_t count, const char* what, const Multiply& multiply) {
  Products bf16_products;
  const auto found = poisoned<Number>(count);
  const auto expected = poisoned<Number>(count);
  multiply(fp8, found.data());
  multiply(bf16_products, expected.data());
  expect_fp8(download(found), download(expected), what);
}

void expect_products(Products& fp8, const Matrix& matrix, bool backward) {
  const std::size_t of_outputs = std::size_t{kTokens} * static_cast<std::size_t>(matrix.outputs);
  const std::size_t of_inputs = std::size_t{kTokens} * static_cast<std::size_t>(matrix.inputs);
  const auto x = upload_bf16(draw(of_inputs, 11));
  const auto dy = upload_bf16(draw(of_outputs, 12, 1e-6));  // gradients are small
  const auto c = upload(draw(of_outputs, 13));
  expect_same<bf16>(fp8, of_outputs, "bf16", [&](Products& products, bf16* y) {
    products.multiply(y, x.data(), matrix.values, kTokens, matrix.outputs, matrix.inputs, nullptr);
  });
  expect_same<float>(fp8, of_outputs, "float", [&](Products& products, float* y) {
    products.multiply(y, x.data(), matrix.values, kTokens, matrix.outputs, matrix.inputs, nullptr);
  });
  expect_same<float>(fp8, of_outputs, "added", [&](Products& products, float* y) {
    products.multiply_add(y, c.data(), x.data(), matrix.values, kTokens, matrix.outputs,
                          matrix.inputs, nullptr);
  });
  if (backward) {
    expect_same<bf16>(fp8, of_inputs, "gradient", [&](Products& products, bf16* dx) {
      products.input_gradient(dx, dy.data(), matrix.values, kTokens, matrix.outputs, matrix.inputs,
                              false, nullptr);
    });
  }
}

void expect_products_of_layers(Products& fp8, const model::ModelSpec& spec, const Layers& layers,
                               bool backward) {
  const model::AttentionSpec& attention = spec.attention();
  const DeviceLayerWeights& last = layers.weights.layers.back();
  const int hidden = spec.hidden;
  expect_products(fp8, {last.query, attention.query_width() + 2 * attention.key_width(), hidden},
                  backward);
  expect_products(fp8, {last.output, hidden, attention.output_width()}, backward);
  expect_products(fp8, {last.gate, 2 * spec.dense_width(), hidden}, backward);
  expect_products(fp8, {last.down, hidden, spec.dense_width()}, backward);
}

TEST_F(CudaFp8Products, AreNearThoseInBf16) {
  const model::ModelSpec spec = testing::wide_config("llama");
  const TrainingOptions options = options_with(model::DmsConfig::Source::borrowed);
  const Layers teacher(spec, 100);
  const Layers student(spec, 200);
  const Fp8Copies copies(options, spec, teacher.weights, student.weights, nullptr);
  copies.refresh(nullptr);
  Products products;
  products.use(copies);
  expect_products_of_layers(products, spec, teacher, false);
  expect_products_of_layers(products, spec, student, true);
}

TEST_F(CudaFp8Products, OfAnAdapterUseTheTeachersMatrices) {
  const model::ModelSpec spec = testing::wide_config("llama");
  const TrainingOptions options = options_with(model::DmsConfig::Source::adapter);
  const Layers both(spec, 100);
  const Fp8Copies copies(options, spec, both.weights, both.weights, nullptr);
  copies.refresh(nullptr);
  Products products;
  products.use(copies);
  expect_products_of_layers(products, spec, both, true);
}

TEST_F(CudaFp8Products, FollowTheValuesOfTrainedMatrices) {
  const model::ModelSpec spec = testing::wide_config("llama");
  const Layers teacher(spec, 100);
  const Layers student(spec, 200);
  const Layers later(spec, 300);
  const Fp8Copies copies(options_with(model::DmsConfig::Source::borrowed), spec, teacher.weights,
                         student.weights, nullptr);
  copies.refresh(nullptr);
  for (std::size_t i = 0; i < student.matrices.size(); ++i) {
    const auto& to = student.matrices[i];
    winnow::cuda::check(cudaMemcpy(to.data(), later.matrices[i].data(), to.size() * sizeof(bf16),
                                   cudaMemcpyDeviceToDevice),
                        "copy");
  }
  copies.refresh(nullptr);
  Products products;
  products.use(copies);
  expect_products_of_layers(products, spec, student, true);
}

// Matrices without copies are multiplied in bf16: those whose sides are no multiples of 16.
TEST_F(CudaFp8Products, LeaveOtherMatricesInBf16) {
  model::ModelSpec spec = testing::wide_config("llama");
  for (model::LayerSpec& layer : spec.layers) {
    layer.feed_forward.intermediate = 408;  // 816 of gate and up are 51 times 16
  }
  const Layers both(spec, 100);
  const Fp8Copies copies(options_with(model::DmsConfig::Source::adapter), spec, both.weights,
                         both.weights, nullptr);
  const DeviceLayerWeights& layer = both.weights.layers.front();
  EXPECT_NE(copies.find(layer.query), nullptr);
  EXPECT_NE(copies.find(layer.gate), nullptr);
  EXPECT_EQ(copies.find(layer.down), nullptr);
}

}  // namespace
}  // namespace winnow::train::cuda
