#include "ops/cpu/linear/dequantize.h"

#include <cassert>
#include <cstddef>
#include <vector>

#include "ops/cpu/linear/gemv.h"
#include "ops/cpu/rounding.h"

namespace winnow::ops::cpu {

// Row by row, not optimised: quantised weights are multiplied as integers, unless weights of other
// formats share the inputs.
void dequantize(const Weight& weight, std::size_t begin, Matrix<bf16> out) {
  assert(is_quantized(weight.format));
  std::vector<float> values(out.cols);
  for (std::size_t i = 0; i < out.rows; ++i) {
    dequantize_rows(weight, begin + i, {values.data(), 1, out.cols});
    round_to_bf16(values, out.row(i).data());
  }
}

}  // namespace winnow::ops::cpu
