// Training attention on the device, forward and backward, against its definition in double.
#include "ops/cuda/training/training_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <tuple>

#include "base/cuda/device.h"
#include "base/error.h"
#include "ops/cuda/training/training_attention_testing.h"

namespace winnow::ops::cuda {
namespace {

using testing::TrainingCase;
using testing::TrainingOperands;
using testing::TrainingReference;
using winnow::cuda::DeviceBuffer;

constexpr int kHuge = std::numeric_limits<int>::max();

/// A matrix in device memory whose rows are longer than what is used of them.
template <class T>
class Rows {
 public:
  Rows(std::size_t rows, std::size_t cols)
      : rows_(rows), cols_(cols), buffer_((rows + kSpare) * (cols + kSpare)) {
    buffer_.fill(0xFF);
  }
  Rows(const std::vector<float>& from, std::size_t rows) : rows_(rows), cols_(from.size() / rows) {
    std::vector<T> all((rows_ + kSpare) * (cols_ + kSpare), not_a_number());
    for (std::size_t i = 0; i < from.size(); ++i) {
      all[i / cols_ * (cols_ + kSpare) + i % cols_] = converted(from[i]);
    }
    buffer_ = DeviceBuffer<T>(std::span<const T>(all));
  }

  [[nodiscard]] Matrix<T> matrix() const { return {buffer_.data(), rows_, cols_, cols_ + kSpare}; }
  /// What is used; nothing else may have been written to.
  [[nodiscard]] std::vector<float> read() const {
    std::vector<T> all(buffer_.size());
    buffer_.read(all);
    std::vector<float> result;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::size_t col = i % (cols_ + kSpare);
      const float x = to_float(all[i]);
      if (col < cols_ && i / (cols_ + kSpare) < rows_) {
        result.push_back(x);
      } else if (!std::isnan(x)) {
        ADD_FAILURE() << "written outside the matrix, at " << i / (cols_ + kSpare) << ", " << col;
        return result;
      }
    }
    return result;
  }

 private:
  static constexpr std::size_t kSpare = 8;
  static T converted(float x) {
    if constexpr (std::is_same_v<T, bf16>) {
      return to_bf16(x);
    } else {
      return x;
    }
  }
  static T not_a_number() { return converted(std::numeric_limits<float>::quiet_NaN()); }

  std::size_t rows_;
  std::size_t cols_;
  DeviceBuffer<T> buffer_;
};

struct Results {
  std::vector<float> out;
  std::vector<float> normalizers;
  std::vector<float> dqueries;
  std::vector<float> dkeys;
  std::vector<float> dvalues;
  std::vector<float> dbias;
  bool operator==(const Results&) const = default;
};

/// Forward and backward on the device; what they do not write is NaN.
Results attend(const TrainingCase& c, const TrainingOperands& operands, TrainingKernel kernel) {
  const auto rows = static_cast<std::size_t>(c.tokens);
  const auto kv_heads = static_cast<std::size_t>(c.kv_heads);
  const auto heads = kv_heads * static_cast<std::size_t>(c.group);
  const auto dim = static_cast<std::size_t>(c.head_dim);
  const Rows<bf16> queries(operands.queries, rows);
  const Rows<bf16> keys(operands.keys, rows);
  const Rows<bf16> values(operands.values, rows);
  const Rows<bf16> dout(operands.dout, rows);
  const Rows<float> bias(operands.bias, rows);
  const DeviceBuffer<std::int32_t> first_key(operands.first_key);
  DeviceBuffer<std::byte> scratch(
      training_attention_scratch_bytes(c.tokens, static_cast<int>(heads), c.head_dim));
  scratch.fill(0xFF);
  const TrainingAttention attention{
      .head_dim = c.head_dim,
      .group = c.group,
      .window = c.window,
      .scale = 1.0F / std::sqrt(static_cast<float>(c.head_dim)),
      .first_key = first_key.data(),
      .queries = queries.matrix(),
      .keys = keys.matrix(),
      .values = values.matrix(),
      .bias = c.biased ? Matrix<const float>(bias.matrix()) : Matrix<const float>()};
  const Rows<bf16> out(rows, heads * dim);
  const Rows<float> normalizers(rows, heads);
  const Rows<bf16> dqueries(rows, heads * dim);
  const Rows<bf16> dkeys(rows, kv_heads * dim);
  const Rows<bf16> dvalues(rows, kv_heads * dim);
  const Rows<float> dbias(rows, c.biased ? kv_heads : 0);
  const winnow::cuda::Stream stream;
  training_attention(attention, out.matrix(), normalizers.matrix(), scratch.data(), stream.get(),
                     kernel);
  training_attention_backward(attention, out.matrix(), normalizers.matrix(), dout.matrix(),
                              {.queries = dqueries.matrix(),
                               .keys = dkeys.matrix(),
                               .values = dvalues.matrix(),
                               .bias = c.biased ? dbias.matrix() : Matrix<float>()},
                              scratch.data(), stream.get(), kernel);
  stream.synchronize();
  return {out.read(),   normalizers.read(), dqueries.read(),
          dkeys.read(), dvalues.read(),     dbias.read()};
}

/// ||a - b|| / ||b||, and the largest of it over rows of `width`, whose ||b|| is that of an average
/// row or their own, whichever is more. NaNs stay.
void expect_close(const std::vector<float>& a, const std::vector<double>& b, std::size_t width,
                  double most, double most_of_row, const char* name) {
  ASSERT_EQ(a.size(), b.size()) << name;
  double norm = 0.0;
  double difference = 0.0;
  std::vector<std::pair<double, double>> rows(b.size() / width);
  for (std::size_t i = 0; i < b.size(); ++i) {
    const double x = (a[i] - b[i]) * (a[i] - b[i]);
    rows[i / width].first += x;
    rows[i / width].second += b[i] * b[i];
    difference += x;
    norm += b[i] * b[i];
  }
  constexpr double kTiny = 1e-10;  // of the square, where nothing but zeros is expected
  EXPECT_LE(difference, most * most * norm + kTiny) << name;
  const double average = norm / static_cast<double>(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double of_row = std::max(average, rows[i].second);
    ASSERT_LE(rows[i].first, most_of_row * most_of_row * of_row + kTiny) << name << ", row " << i;
  }
}

void expect_right(const TrainingCase& c) {
  const TrainingOperands operands(c);
  const TrainingReference exact(c, operands);
  const auto dim = static_cast<std::size_t>(c.head_dim);
  for (const TrainingKernel kernel : {TrainingKernel::best, TrainingKernel::portable}) {
    SCOPED_TRACE(kernel == TrainingKernel::best ? "best" : "portable");
    const Results results = attend(c, operands, kernel);
    for (std::size_t i = 0; i < exact.normalizers.size(); ++i) {
      ASSERT_NEAR(results.normalizers[i], exact.normalizers[i], 1e-4) << "normalizer " << i;
    }
    // Weights, gradients of scores and results are rounded to bf16, by 2^-9 at most. The output's
    // rounding enters every gradient of a query's scores, whose sum may be small.
    expect_close(results.out, exact.out, dim, 3e-3, 8e-3, "out");
    expect_close(results.dvalues, exact.dvalues, dim, 4e-3, 1e-2, "dvalues");
    expect_close(results.dqueries, exact.dqueries, dim, 6e-3, 4e-2, "dqueries");
    expect_close(results.dkeys, exact.dkeys, dim, 6e-3, 4e-2, "dkeys");
    expect_close(results.dbias, exact.dbias, 1, 6e-3, 4e-2, "dbias");
  }
}

class CudaTrainingAttention : public ::testing::TestWithParam<std::tuple<int, int>> {
 protected:
  void SetUp() override {
    if (winnow::cuda::device_count() == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
  }
  static void expect_right(int window, bool biased, int tokens, std::vector<int> documents) {
    const auto [dim, group] = GetParam();
    cuda::expect_right({dim, 2, group, window, biased, tokens, std::move(documents)});
  }
};
INSTANTIATE_TEST_SUITE_P(Shapes, CudaTrainingAttention,
                         ::testing::Combine(::testing::Values(8, 24, 64, 80, 96, 128),
                                            ::testing::Values(1, 3, 4, 8)),
                         [](const auto& info) {
                           return "D" + std::to_string(std::get<0>(info.param)) + "_G" +
                                  std::to_string(std::get<1>(info.param));
                         });

TEST_P(CudaTrainingAttention, OneToken) {
  expect_right(0, true, 1, {0});
}
TEST_P(CudaTrainingAttention, OneDocument) {
  expect_right(40, true, 331, {0});
}
TEST_P(CudaTrainingAttention, PackedDocuments) {
  expect_right(30, true, 277, {0, 1, 2, 60, 64, 191, 200, 276});
}
TEST_P(CudaTrainingAttention, NoWindow) {
  expect_right(0, true, 129, {0, 70});
}
TEST_P(CudaTrainingAttention, WindowThatHoldsEverything) {
  expect_right(kHuge, true, 200, {0, 128});
}
TEST_P(CudaTrainingAttention, WithoutBias) {
  expect_right(16, false, 190, {0, 33});
}

class LongCudaTrainingAttention : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Shapes, LongCudaTrainingAttention, ::testing::Values(64, 80, 128));

// Many tiles, in which nobody may depend on who comes first.
TEST_P(LongCudaTrainingAttention, RepeatsItselfToTheBit) {
  if (winnow::cuda::device_count() == 0) {
    GTEST_SKIP() << "no CUDA device";
  }
  const TrainingCase c{GetParam(), 8, 4, 256, true, 4999, {0, 1000, 1100, 1101, 4000}};
  const TrainingOperands operands(c);
  const Results once = attend(c, operands, TrainingKernel::best);
  EXPECT_EQ(once, attend(c, operands, TrainingKernel::best));
  const Results portable = attend(c, operands, TrainingKernel::portable);
  const auto dim = static_cast<std::size_t>(c.head_dim);
  const auto expect_close_to = [](const std::vector<float>& a, const std::vector<float>& b,
                                  std::size_t width, const char* name) {
    expect_close(a, std::vector<double>(b.begin(), b.end()), width, 8e-3, 4e-2, name);
  };
  expect_close_to(once.out, portable.out, dim, "out");
  expect_close_to(once.dqueries, portable.dqueries, dim, "dqueries");
  expect_close_to(once.dkeys, portable.dkeys, dim, "dkeys");
  expect_close_to(once.dvalues, portable.dvalues, dim, "dvalues");
  expect_close_to(once.dbias, portable.dbias, 1, "dbias");
}

TEST(CudaTrainingAttentionArguments, RefusesShapesThatDoNotFit) {
  const auto attend_shapes = [](int dim, std::size_t key_rows, std::size_t stride) {
    const auto cols = static_cast<std::size_t>(dim);
    const TrainingAttention attention{.head_dim = dim,
                                      .group = 2,
                                      .scale = 1.0F,
                                      .queries = {nullptr, 4, 2 * cols, stride},
                                      .keys = {nullptr, key_rows, cols},
                                      .values = {nullptr, key_rows, cols}};
    training_attention(attention, {nullptr, 4, 2 * cols}, {nullptr, 4, 2}, nullptr, nullptr);
  };
  EXPECT_THROW(attend_shapes(136, 4, 272), Error);
  EXPECT_THROW(attend_shapes(12, 4, 24), Error);
  EXPECT_THROW(attend_shapes(16, 3, 32), Error);
  EXPECT_THROW(attend_shapes(16, 4, 33), Error);
}

}  // namespace
}  // namespace winnow::ops::cuda
