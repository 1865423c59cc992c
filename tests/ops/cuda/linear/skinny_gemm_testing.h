// Weights and inputs of tests on the device, and their values in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <vector>

#include "base/threads.h"
#include "ops/cuda/linear/skinny_gemm.h"

namespace winnow::ops::cuda::testing {

using winnow::cuda::DeviceBuffer;

/// Uniformly distributed, with this standard deviation.
inline std::vector<float> noise(std::size_t count, std::uint64_t seed, float deviation = 1.0F) {
  std::vector<float> values(count);
  std::uint64_t state = seed * 0x9E3779B97F4A7C15U + 1;
  for (float& x : values) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    x = (static_cast<float>(state >> 40) * 0x1p-23F - 1.0F) * 1.7320508F * deviation;
  }
  return values;
}

inline std::vector<bf16> rounded(const std::vector<float>& values) {
  std::vector<bf16> result;
  for (const float x : values) {
    result.push_back(to_bf16(x));
  }
  return result;
}

template <class T>
DeviceBuffer<T> on_device(const std::vector<T>& values) {
  DeviceBuffer<T> buffer{std::span<const T>(values)};
  winnow::cuda::check(cudaDeviceSynchronize(), "copy");
  return buffer;
}

template <class T>
std::vector<T> read(const DeviceBuffer<T>& buffer) {
  std::vector<T> values(buffer.size());
  buffer.read(values);
  return values;
}

template <class T>
DeviceBuffer<T> unwritten(std::size_t size) {
  DeviceBuffer<T> buffer(size);
  buffer.fill(0xFF);
  winnow::cuda::check(cudaDeviceSynchronize(), "poison");
  return buffer;
}

/// A weight on the device, and the values that its codes stand for.
struct TestWeight {
  TestWeight(DeviceWeightFormat format, int n, int k, unsigned seed)
      : rows(static_cast<std::size_t>(n)), cols(static_cast<std::size_t>(k)) {
    source = noise(rows * cols, seed, 1.0F / std::sqrt(static_cast<float>(k)));
    source[0] = 1.0F;  // a row whose other codes are small
    const Weight weight{.format = WeightFormat::f32, .rows = n, .cols = k, .data = source.data()};
    device = DeviceWeight(weight, format);
    paired = DeviceWeight(weight, format, true);
    values = quantized(weight, format);
  }

  [[nodiscard]] std::vector<float> quantized(const Weight& weight,
                                             DeviceWeightFormat format) const {
    std::vector<float> result(source);
    if (format == DeviceWeightFormat::bf16) {
      for (float& x : result) {
        x = to_float(to_bf16(x));
      }
    } else if (format == DeviceWeightFormat::fp8) {
      for (std::size_t row = 0; row < rows; ++row) {
        const std::span<float> values_of_row(result.data() + row * cols, cols);
        float largest = 0.0F;
        for (const float x : values_of_row) {
          largest = std::max(largest, std::abs(x));
        }
        const float scale = largest / kF8E4M3Max;
        for (float& x : values_of_row) {
          x = scale * to_float(to_f8e4m3(x / scale));
        }
      }
    } else {
      const QuantizedWeight host(
          weight, format == DeviceWeightFormat::int8 ? WeightFormat::int8 : WeightFormat::int4);
      for (std::size_t row = 0; row < rows; ++row) {
        dequantize_row(host.view(), static_cast<std::int64_t>(row), result.data() + row * cols);
      }
    }
    return result;
  }

  std::size_t rows;
  std::size_t cols;
  std::vector<float> source;
  std::vector<float> values;
  DeviceWeight device;
  DeviceWeight paired;  // the halves of the rows
};

/// Shared by all tests of a process: the int4 reference takes long to compute.
inline const TestWeight& shared_weight(DeviceWeightFormat format, int n, int k) {
  static std::map<std::tuple<DeviceWeightFormat, int, int>, TestWeight> weights;
  const auto key = std::tuple(format, n, k);
  const auto found = weights.find(key);
  return found != weights.end() ? found->second
                                : weights.emplace(key, TestWeight(format, n, k, 1)).first->second;
}

/// Rows of input, the squares of some in parts.
class TestInput {
 public:
  TestInput(const TestWeight& weight, int parts, unsigned seed)
      : weight_(weight),
        x_(rounded(noise(kMostSkinnyRows * weight.cols, seed))),
        squares_(noise(static_cast<std::size_t>(parts) * kMostSkinnyRows, seed + 1)),
        parts_(static_cast<std::size_t>(parts)),
        device_x_(on_device(x_)) {
    for (float& x : squares_) {
      x = (0.1F + x * x) * static_cast<float>(weight.cols);
    }
  }

  /// The first `rows`. Valid until the next call.
  SkinnyInput view(std::size_t rows) {
    std::vector<float> sums;
    for (std::size_t part = 0; part < parts_; ++part) {
      const auto from = squares_.begin() + static_cast<std::ptrdiff_t>(part * kMostSkinnyRows);
      sums.insert(sums.end(), from, from + static_cast<std::ptrdiff_t>(rows));
    }
    device_sums_ = on_device(sums);
    return {device_x_.data(), device_sums_.data(), static_cast<int>(parts_), kEpsilon};
  }

  /// x weight^T of all rows, in double.
  [[nodiscard]] std::vector<double> product() const {
    std::vector<double> y(kMostSkinnyRows * weight_.rows);
    std::vector<double> x(x_.size());
    std::ranges::transform(x_, x.begin(), [](bf16 value) { return to_float(value); });
    parallel_ranges(weight_.rows, [&](std::size_t begin, std::size_t end, int) {
      for (std::size_t b = 0; b < kMostSkinnyRows; ++b) {
        for (std::size_t n = begin; n < end; ++n) {
          double sum = 0.0;
          for (std::size_t k = 0; k < weight_.cols; ++k) {
            sum +=
                static_cast<double>(weight_.values[n * weight_.cols + k]) * x[b * weight_.cols + k];
          }
          y[b * weight_.rows + n] = sum * norm(b);
        }
      }
    });
    return y;
  }

 private:
  static constexpr float kEpsilon = 1e-5F;

  [[nodiscard]] double norm(std::size_t row) const {
    double sum = 0.0;
    for (std::size_t part = 0; part < parts_; ++part) {
      sum += squares_[part * kMostSkinnyRows + row];
    }
    return parts_ == 0 ? 1.0 : 1.0 / std::sqrt(sum / static_cast<double>(weight_.cols) + kEpsilon);
  }

  const TestWeight& weight_;
  std::vector<bf16> x_;
  std::vector<float> squares_;
  std::size_t parts_;
  DeviceBuffer<bf16> device_x_;
  DeviceBuffer<float> device_sums_;
};

/// ||a - b|| / ||b|| of each row of `cols` of a, the largest; NaN counts as wrong.
template <class T>
double relative_error(const std::vector<T>& a, const std::vector<double>& b, std::size_t cols) {
  double largest = 0.0;
  for (std::size_t first = 0; first < a.size(); first += cols) {
    double difference = 0.0;
    double norm = 0.0;
    for (std::size_t i = first; i < first + cols; ++i) {
      const double x = to_float(a[i]);
      difference += (x - b[i]) * (x - b[i]);
      norm += b[i] * b[i];
    }
    const double error = std::sqrt(difference / norm);
    largest = std::isnan(error) ? INFINITY : std::max(largest, error);
  }
  return largest;
}

}  // namespace winnow::ops::cuda::testing
