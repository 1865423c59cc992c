// Activations on the device against their definitions in double; gradients against finite
// differences of these definitions.
#include "ops/cuda/general/activation.h"

#include <numbers>
#include <type_traits>

#include "base/cuda/on_device.h"
#include "ops/cuda/training/training_ops_testing.h"

namespace winnow::ops::cuda::testing {
namespace {

constexpr std::size_t kRows = 7;
constexpr std::size_t kCols[] = {8, 40, 2056};

double logistic(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

double defined(Activation kind, double x) {
  switch (kind) {
    case Activation::silu:
      return x * logistic(x);
    case Activation::gelu_tanh:
      return 0.5 * x *
             (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case Activation::gelu:
      return 0.5 * x * (1.0 + std::erf(x / std::numbers::sqrt2));
    default:
      return x > 0.0 ? x * x : 0.0;
  }
}

double defined(const GatedActivation& activation, double gate, double up) {
  if (activation.limit > 0.0F) {
    const double limit = activation.limit;
    const double g = std::min(gate, limit);
    return g * logistic(1.702 * g) * (std::clamp(up, -limit, limit) + 1.0);
  }
  return defined(activation.kind, gate) * up;
}

template <class F>
double slope(const F& f, double x) {
  constexpr double kStep = 1e-6;
  return (f(x + kStep) - f(x - kStep)) / (2.0 * kStep);
}

template <class T>
DeviceBuffer<T> upload_as(std::span<const float> values) {
  if constexpr (std::is_same_v<T, bf16>) {
    return upload_bf16(values);
  } else {
    return upload(values);
  }
}
template <class T>
constexpr double kTolerance = std::is_same_v<T, bf16> ? kRounded : kExact;

/// The positions of the gates, the factors `up` and the biases of both.
struct GatedOperands {
  GatedOperands(std::size_t cols, bool biased)
      : gate_up(draw_bf16(kRows * 2 * cols, 1, 2.5)), dout(draw_bf16(kRows * cols, 2)) {
    if (biased) {
      bias = draw(2 * cols, 3);
    }
  }
  [[nodiscard]] double at(std::size_t row, std::size_t col) const {
    const std::size_t width = gate_up.size() / kRows;
    return double{gate_up[row * width + col]} + (bias.empty() ? 0.0 : double{bias[col]});
  }
  std::vector<float> gate_up;  // [rows, 2 * cols]
  std::vector<float> dout;     // [rows, cols]
  std::vector<float> bias;     // [2 * cols] or empty
};

template <class T>
void expect_gated(const GatedActivation& activation, std::size_t cols, bool biased) {
  const GatedOperands in(cols, biased);
  std::vector<float> out;
  std::vector<float> gradient(in.gate_up.size());
  for (std::size_t i = 0; i < kRows * cols; ++i) {
    const std::size_t row = i / cols;
    const std::size_t col = i % cols;
    const double gate = in.at(row, col);
    const double up = in.at(row, cols + col);
    out.push_back(static_cast<float>(defined(activation, gate, up)));
    const auto put = [&](std::size_t at, double x) {
      gradient[row * 2 * cols + at] = static_cast<float>(double{in.dout[i]} * x);
    };
    put(col, slope([&](double x) { return defined(activation, x, up); }, gate));
    put(cols + col, slope([&](double x) { return defined(activation, gate, x); }, up));
  }
  const auto gate_up = upload_as<T>(in.gate_up);
  const auto bias = upload(in.bias);
  const float* of_both = biased ? bias.data() : nullptr;
  const auto result = poisoned<T>(out.size());
  const int rows = static_cast<int>(kRows);
  const int width = static_cast<int>(cols);
  activate_multiply(activation, result.data(), gate_up.data(), rows, width, of_both, nullptr);
  expect_close(download(result), out, kTolerance<T>, "result");
  const auto product = upload_as<T>(in.dout);
  activate_multiply_backward(activation, gate_up.data(), product.data(), rows, width, of_both,
                             nullptr);
  expect_close(download(product), out, kTolerance<T>, "result of backward");
  expect_close(download(gate_up), gradient, kTolerance<T>, "gradient");
}

template <class T>
void expect_plain(Activation kind, std::size_t cols, bool biased) {
  const auto x = draw_bf16(kRows * cols, 1, 2.5);
  const auto dout = draw_bf16(x.size(), 2);
  const auto bias = biased ? draw(cols, 3) : std::vector<float>();
  std::vector<float> out;
  std::vector<float> gradient;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double at = double{x[i]} + (biased ? double{bias[i % cols]} : 0.0);
    out.push_back(static_cast<float>(defined(kind, at)));
    gradient.push_back(static_cast<float>(double{dout[i]} *
                                          slope([&](double y) { return defined(kind, y); }, at)));
  }
  const auto on_device = upload(bias);
  const float* of_all = biased ? on_device.data() : nullptr;
  const int rows = static_cast<int>(kRows);
  const int width = static_cast<int>(cols);
  const auto activated = upload_as<T>(x);
  activate(kind, activated.data(), rows, width, of_all, nullptr);
  expect_close(download(activated), out, kTolerance<T>, "result");
  const auto operand = upload_as<T>(x);
  const auto result = upload_as<T>(dout);
  activate_backward(kind, operand.data(), result.data(), rows, width, of_all, nullptr);
  expect_close(download(result), out, kTolerance<T>, "result of backward");
  expect_close(download(operand), gradient, kTolerance<T>, "gradient");
}

std::string name_of(const ::testing::TestParamInfo<GatedActivation>& info) {
  constexpr const char* kNames[] = {"silu", "gelu_tanh", "gelu", "relu_squared"};
  return info.param.limit > 0.0F ? "clamped" : kNames[static_cast<std::size_t>(info.param.kind)];
}

class CudaActivation : public winnow::testing::OnDevice<::testing::TestWithParam<GatedActivation>> {
};
INSTANTIATE_TEST_SUITE_P(Kinds, CudaActivation,
                         ::testing::Values(GatedActivation{Activation::silu},
                                           GatedActivation{Activation::gelu_tanh},
                                           GatedActivation{Activation::gelu},
                                           GatedActivation{Activation::relu_squared},
                                           GatedActivation{Activation::silu, 1.7F}),
                         name_of);

TEST_P(CudaActivation, Gated) {
  for (const std::size_t cols : kCols) {
    for (const bool biased : {false, true}) {
      expect_gated<bf16>(GetParam(), cols, biased);
      expect_gated<float>(GetParam(), cols, biased);
    }
  }
}

TEST_P(CudaActivation, Plain) {
  for (const std::size_t cols : kCols) {
    for (const bool biased : {false, true}) {
      expect_plain<bf16>(GetParam().kind, cols, biased);
      expect_plain<float>(GetParam().kind, cols, biased);
    }
  }
}

// Extreme inputs give the expected limits, and a NaN remains.
TEST_P(CudaActivation, LargeNumbersAndNone) {
  const std::vector<float> gates{
      -1e30F, -200.0F, 200.0F, 1e4F, std::numeric_limits<float>::quiet_NaN(), 0.0F, -30.0F, 30.0F};
  std::vector<float> both = gates;
  both.insert(both.end(), 8, 0.5F);
  const auto gate_up = upload(both);
  const auto out = poisoned<float>(8);
  activate_multiply(GetParam(), out.data(), gate_up.data(), 1, 8, nullptr, nullptr);
  const auto result = download(out);
  const auto product = upload(std::vector<float>(8, 1.0F));
  activate_multiply_backward(GetParam(), gate_up.data(), product.data(), 1, 8, nullptr, nullptr);
  const auto gradient = download(gate_up);
  for (std::size_t i = 0; i < 8; ++i) {
    if (std::isnan(gates[i])) {
      EXPECT_TRUE(std::isnan(result[i]));
      continue;
    }
    const double expected = defined(GetParam(), gates[i], 0.5);
    EXPECT_NEAR(result[i], expected, 1e-5 * std::abs(expected) + 1e-6) << gates[i];
    EXPECT_TRUE(std::isfinite(gradient[i])) << gates[i];
  }
}

}  // namespace
}  // namespace winnow::ops::cuda::testing
