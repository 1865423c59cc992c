// Weights that stay in the 4 bits of a checkpoint.
#pragma once

#include "base/tensor.h"
#include "checkpoint/quantized/quantized_matrix.h"
#include "ops/weight.h"

namespace winnow::model {

/// A weight of exactly the values of a matrix in MXFP4. The codes stay in the mapped file where its
/// rows follow each other there, and are copied where they do not.
class Mxfp4Weight {
 public:
  /// What `matrix` sees must outlive this.
  explicit Mxfp4Weight(const quantized::QuantizedMatrix& matrix);
  [[nodiscard]] const ops::Weight& view() const { return view_; }

 private:
  Buffer<std::byte> codes_;
  Buffer<bf16> scales_;
  ops::Weight view_;
};

}  // namespace winnow::model
