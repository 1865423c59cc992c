#include "ops/cpu/linear/operands.h"

#include <type_traits>
#include <vector>

#include "ops/cpu/linear/bf16_dots.h"
#include "ops/cpu/linear/dequantize.h"
#include "ops/cpu/linear/gemv.h"
#include "ops/cpu/rounding.h"
#include "ops/cpu/rows.h"

namespace winnow::ops::cpu {

template <>
Matrix<const float> as_operand(Workspace&, Matrix<const float> x) {
  return x;
}

template <>
Matrix<const bf16> as_operand(Workspace& workspace, Matrix<const float> x) {
  const Matrix<bf16> result(workspace.take<bf16>(x.rows * x.cols).data(), x.rows, x.cols);
  for_rows(x.rows, x.cols, [&](std::size_t m) { round_to_bf16(x.row(m), result.row(m).data()); });
  return result;
}

template <class T>
Matrix<const T> weight_rows(const Weight& weight, std::size_t begin, std::size_t end,
                            std::span<T> memory) {
  constexpr auto kStored = std::is_same_v<T, float> ? WeightFormat::f32 : WeightFormat::bf16;
  const auto cols = static_cast<std::size_t>(weight.cols);
  if (weight.format == kStored) {
    return {static_cast<const T*>(weight.data) + begin * cols, end - begin, cols};
  }
  const Matrix<T> dequantized(memory.data(), end - begin, cols);
  if constexpr (std::is_same_v<T, float>) {
    dequantize_rows(weight, begin, dequantized);
  } else if (is_quantized(weight.format) && has_bf16_dots()) {
    dequantize(weight, begin, dequantized);
  } else if (weight.format == WeightFormat::f32) {
    const Matrix<const float> stored(static_cast<const float*>(weight.data) + begin * cols,
                                     end - begin, cols);
    for (std::size_t i = 0; i < dequantized.rows; ++i) {
      round_to_bf16(stored.row(i), dequantized.row(i).data());
    }
  } else {
    std::vector<float> values(cols);
    const Matrix<float> row(values.data(), 1, cols);
    for (std::size_t i = 0; i < dequantized.rows; ++i) {
      dequantize_rows(weight, begin + i, row);
      round_to_bf16(values, dequantized.row(i).data());
    }
  }
  return dequantized;
}

template Matrix<const float> weight_rows(const Weight&, std::size_t, std::size_t, std::span<float>);
template Matrix<const bf16> weight_rows(const Weight&, std::size_t, std::size_t, std::span<bf16>);

}  // namespace winnow::ops::cpu
