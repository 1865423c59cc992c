// Weights that stay in the 4 or 8 bits of a checkpoint.
#pragma once

#include "base/tensor.h"
#include "checkpoint/quantized/quantized_matrix.h"
#include "ops/weight.h"

namespace winnow::model {

/// A weight of exactly the values of a matrix that stays packed: in MXFP4, whose codes stay in the
/// mapped file where its rows follow each other there and are copied where they do not, or in int4
/// or int8, whose codes and scales are arranged anew.
class PackedWeight {
 public:
  /// What `matrix` sees must outlive this.
  explicit PackedWeight(const quantized::QuantizedMatrix& matrix);
  [[nodiscard]] const ops::Weight& view() const { return view_; }

 private:
  void keep_mxfp4(const quantized::QuantizedMatrix& matrix);
  void pack_integers(const quantized::QuantizedMatrix& matrix);

  Buffer<std::byte> codes_;
  Buffer<bf16> scales_;
  ops::Weight view_;
};

}  // namespace winnow::model
