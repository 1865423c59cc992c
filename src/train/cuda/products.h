// The products of passes, with matrices that may have copies in fp8.
#pragma once

#include <cstdint>
#include <optional>
#include <set>

#include "ops/cuda/linear/linear.h"
#include "train/cuda/fp8_copies.h"

namespace winnow::train::cuda {

/// Rows that a product reads: in bf16, or as the codes of Products::codes_for().
struct ProductRows {
  ProductRows(const bf16* values) : rows(values) {}                   // NOLINT
  ProductRows(const ops::cuda::Fp8RowsTo& values) : codes(values) {}  // NOLINT

  const bf16* rows = nullptr;
  ops::cuda::Fp8RowsTo codes;
};

/// ops::cuda::Linear in bf16. If there are copies of a matrix, its outputs and the gradients of its
/// inputs are computed in fp8, with a scale for each token; gradients of weights never are.
class Products {
 public:
  /// From now on products use `copies`, which must outlive this.
  void use(const Fp8Copies& copies) { copies_ = &copies; }
  [[nodiscard]] ops::cuda::Linear& linear() { return linear_; }
  /// The number of copies, of matrices and of their transposes, that products have read so far.
  [[nodiscard]] std::size_t copies_read() const { return read_.size(); }

  /// Where a kernel may write the input of the next product, with this matrix, as codes; nullopt:
  /// that product is in bf16.
  [[nodiscard]] std::optional<ops::cuda::Fp8RowsTo> codes_for(const bf16* weight) const;

  void multiply(bf16* y, const ProductRows& x, const bf16* weight, int rows, int outputs,
                int inputs, cudaStream_t stream);
  void multiply(float* y, const ProductRows& x, const bf16* weight, int rows, int outputs,
                int inputs, cudaStream_t stream, int stride = 0);
  void multiply_add(float* y, const float* c, const ProductRows& x, const bf16* weight, int rows,
                    int outputs, int inputs, cudaStream_t stream);
  void input_gradient(bf16* dx, const bf16* dy, const bf16* weight, int rows, int outputs,
                      int inputs, bool add, cudaStream_t stream, int stride = 0);
  void weight_gradient(float* dweight, const bf16* dy, const bf16* x, int rows, int outputs,
                       int inputs, cudaStream_t stream, int stride = 0) {
    linear_.weight_gradient(dweight, dy, x, rows, outputs, inputs, stream, stride);
  }

 private:
  [[nodiscard]] const Fp8Copy* copy_of(const bf16* weight) const {
    return copies_ == nullptr ? nullptr : copies_->find(weight);
  }
  /// A copy of a matrix, which is read now.
  [[nodiscard]] ops::cuda::Fp8Rows read(const ops::cuda::Fp8RowsTo& copy);
  [[nodiscard]] ops::cuda::Fp8Rows encode(const ProductRows& x, int rows, int cols,
                                          cudaStream_t stream) const;

  ops::cuda::Linear linear_;
  const Fp8Copies* copies_ = nullptr;  // null: everything is in bf16
  std::set<const std::uint8_t*> read_;
};

}  // namespace winnow::train::cuda
