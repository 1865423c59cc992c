// Shared by tests of training ops on a device.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "base/cuda/device.h"
#include "base/random.h"
#include "ops/context.h"
#include "ops/matrix.h"

namespace winnow::ops::cuda::testing {

using winnow::cuda::DeviceBuffer;

// Results in bf16 from exact operands; and sums in float.
inline constexpr double kRounded = 4e-3;
inline constexpr double kExact = 2e-5;

inline std::vector<float> draw(std::size_t count, std::uint64_t seed, double spread = 1.0) {
  Random random(seed);
  std::vector<float> values(count);
  std::ranges::generate(values, [&] { return static_cast<float>(spread * random.normal()); });
  return values;
}

inline std::vector<bf16> rounded(std::span<const float> values) {
  std::vector<bf16> result(values.size());
  std::ranges::transform(values, result.begin(), [](float x) { return to_bf16(x); });
  return result;
}

inline std::vector<float> widened(std::span<const bf16> values) {
  std::vector<float> result(values.size());
  std::ranges::transform(values, result.begin(), [](bf16 x) { return to_float(x); });
  return result;
}

/// Numbers that bf16 holds exactly.
inline std::vector<float> draw_bf16(std::size_t count, std::uint64_t seed, double spread = 1.0) {
  return widened(rounded(draw(count, seed, spread)));
}

/// Floats in device memory, or the same rounded to bf16.
inline DeviceBuffer<float> upload(std::span<const float> values) {
  return DeviceBuffer<float>(values);
}
inline DeviceBuffer<bf16> upload_bf16(std::span<const float> values) {
  return DeviceBuffer<bf16>(std::span<const bf16>(rounded(values)));
}
/// Memory that has not been written is NaN.
template <class T>
DeviceBuffer<T> poisoned(std::size_t count) {
  DeviceBuffer<T> buffer(count);
  buffer.fill(0xFF);
  return buffer;
}
inline std::vector<float> download(const DeviceBuffer<float>& buffer) {
  winnow::cuda::check(cudaDeviceSynchronize(), "wait");
  std::vector<float> values(buffer.size());
  buffer.read(values);
  return values;
}
inline std::vector<float> download(const DeviceBuffer<bf16>& buffer) {
  winnow::cuda::check(cudaDeviceSynchronize(), "wait");
  std::vector<bf16> values(buffer.size());
  buffer.read(values);
  return widened(values);
}

inline void expect_close(std::span<const float> a, std::span<const float> b, double tolerance,
                         const char* what) {
  ASSERT_EQ(a.size(), b.size());
  double difference = 0.0;
  double norm = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(double{a[i]} - double{b[i]}, 2.0);
    norm += std::pow(double{b[i]}, 2.0);
  }
  EXPECT_LE(std::sqrt(difference), tolerance * std::sqrt(norm)) << what;
}

inline Matrix<float> matrix(std::vector<float>& values, std::size_t cols) {
  return {values.data(), values.size() / cols, cols};
}

class CudaTrainingOps : public ::testing::Test {
 protected:
  void SetUp() override {
    if (winnow::cuda::device_count() == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
    context_.compute = DType::f32;
    context_.workspace = &workspace_;
  }

  ops::Workspace workspace_;
  ops::Context context_;
};

}  // namespace winnow::ops::cuda::testing
