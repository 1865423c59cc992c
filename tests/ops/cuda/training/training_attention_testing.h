// Training attention by its definition in double, and random operands for it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "base/dtype.h"
#include "ops/cuda/training/training_attention.h"

namespace winnow::ops::cuda::testing {

struct TrainingCase {
  int head_dim = 0;
  int kv_heads = 0;
  int group = 0;
  int window = 0;
  bool biased = false;
  int tokens = 0;
  std::vector<int> documents = {0};  // where they begin
  int reach = 0;
  double soft_cap = 0.0;
  bool has_sinks = false;
};

/// Operands as drawn, rounded to bf16, and the documents' starts. A fifth of the biases are zero, a
/// tenth -infinity and a tenth so low that weights vanish.
struct TrainingOperands {
  explicit TrainingOperands(const TrainingCase& c);
  std::vector<float> queries;  // [T, kv_heads * group * head_dim]
  std::vector<float> keys;     // [T, kv_heads * head_dim]
  std::vector<float> values;
  std::vector<float> dout;              // as queries
  std::vector<float> bias;              // [T, kv_heads], or empty
  std::vector<float> sinks;             // [kv_heads * group], or empty
  std::vector<std::int32_t> first_key;  // [T]
};

struct TrainingReference {
  TrainingReference(const TrainingCase& c, const TrainingOperands& operands);
  std::vector<double> out;
  std::vector<double> normalizers;  // [T, kv_heads * group]
  std::vector<double> dqueries;
  std::vector<double> dkeys;
  std::vector<double> dvalues;
  std::vector<double> dbias;
  std::vector<double> dsinks;
  /// The scale of the output's rounding error in a sink's gradient: the root of the sum over
  /// queries of (the sink's weight * sum of |dout * out|)^2.
  std::vector<double> dsinks_size;
};

struct Results {
  std::vector<float> out;
  std::vector<float> normalizers;
  std::vector<float> dqueries;
  std::vector<float> dkeys;
  std::vector<float> dvalues;
  std::vector<float> dbias;
  std::vector<float> dsinks;
  bool operator==(const Results&) const = default;
};

/// Forward and backward on the device; memory that they do not write is NaN.
Results attend(const TrainingCase& c, const TrainingOperands& operands, TrainingKernel kernel);

/// ||a - b|| / ||b||, and the largest of it over rows of `width`, whose ||b|| is that of an average
/// row or their own, whichever is more. NaNs stay.
void expect_close(const std::vector<float>& a, const std::vector<double>& b, std::size_t width,
                  double most, double most_of_row, const char* name);

/// Checks that kernels give the definition's results for a case.
void expect_right(const TrainingCase& c, std::initializer_list<TrainingKernel> kernels);

}  // namespace winnow::ops::cuda::testing
