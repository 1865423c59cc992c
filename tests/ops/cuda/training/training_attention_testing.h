// Training attention by its definition in double, and operands to try it on.
#pragma once

#include <cstdint>
#include <vector>

#include "base/dtype.h"

namespace winnow::ops::cuda::testing {

struct TrainingCase {
  int head_dim;
  int kv_heads;
  int group;
  int window;
  bool biased;
  int tokens;
  std::vector<int> documents = {0};  // where they begin
};

/// Operands as drawn, rounded to bf16, and where documents begin. Of the biases a fifth are zero, a
/// tenth -infinity and a tenth so low that weights vanish.
struct TrainingOperands {
  explicit TrainingOperands(const TrainingCase& c);
  std::vector<float> queries;  // [T, kv_heads * group * head_dim]
  std::vector<float> keys;     // [T, kv_heads * head_dim]
  std::vector<float> values;
  std::vector<float> dout;              // as queries
  std::vector<float> bias;              // [T, kv_heads], or empty
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
};

}  // namespace winnow::ops::cuda::testing
