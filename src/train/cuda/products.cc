#include "train/cuda/products.h"

namespace winnow::train::cuda {
namespace {

ops::cuda::Fp8Rows operand(const ops::cuda::Fp8RowsTo& rows) {
  return {rows.codes, rows.scales};
}

}  // namespace

std::optional<ops::cuda::Fp8RowsTo> Products::codes_for(const bf16* weight) const {
  return copy_of(weight) == nullptr ? std::nullopt : std::optional(copies_->row_codes());
}

ops::cuda::Fp8Rows Products::read(const ops::cuda::Fp8RowsTo& copy) {
  read_.insert(copy.codes);
  return operand(copy);
}

ops::cuda::Fp8Rows Products::encode(const ProductRows& x, int rows, int cols,
                                    cudaStream_t stream) const {
  if (x.codes.codes != nullptr) {
    return operand(x.codes);
  }
  const ops::cuda::Fp8RowsTo codes = copies_->row_codes();
  ops::cuda::quantize_rows(codes, x.rows, rows, cols, stream);
  return operand(codes);
}

void Products::multiply(bf16* y, const ProductRows& x, const bf16* weight, int rows, int outputs,
                        int inputs, cudaStream_t stream) {
  if (const Fp8Copy* copy = copy_of(weight)) {
    return linear_.multiply(y, encode(x, rows, inputs, stream), read(copy->rows), rows, outputs,
                            inputs, stream);
  }
  linear_.multiply(y, x.rows, weight, rows, outputs, inputs, stream);
}

void Products::multiply(float* y, const ProductRows& x, const bf16* weight, int rows, int outputs,
                        int inputs, cudaStream_t stream, int stride) {
  if (const Fp8Copy* copy = copy_of(weight)) {
    return linear_.multiply(y, encode(x, rows, inputs, stream), read(copy->rows), rows, outputs,
                            inputs, stream, stride);
  }
  linear_.multiply(y, x.rows, weight, rows, outputs, inputs, stream, stride);
}

void Products::multiply_add(float* y, const float* c, const ProductRows& x, const bf16* weight,
                            int rows, int outputs, int inputs, cudaStream_t stream) {
  if (const Fp8Copy* copy = copy_of(weight)) {
    return linear_.multiply_add(y, c, encode(x, rows, inputs, stream), read(copy->rows), rows,
                                outputs, inputs, stream);
  }
  linear_.multiply_add(y, c, x.rows, weight, rows, outputs, inputs, stream);
}

// In fp8 this is a product with the transpose, whose rows are the matrix's columns.
void Products::input_gradient(bf16* dx, const bf16* dy, const bf16* weight, int rows, int outputs,
                              int inputs, bool add, cudaStream_t stream, int stride) {
  const Fp8Copy* copy = copy_of(weight);
  if (copy != nullptr && copy->matrix.transposed && !add) {
    return linear_.multiply(dx, encode(dy, rows, outputs, stream), read(copy->columns), rows,
                            inputs, outputs, stream);
  }
  linear_.input_gradient(dx, dy, weight, rows, outputs, inputs, add, stream, stride);
}

}  // namespace winnow::train::cuda
