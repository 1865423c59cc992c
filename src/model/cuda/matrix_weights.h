// Row-major weights for cuBLASLt.
#pragma once

#include <cstdint>
#include <map>

#include "model/cuda/device_model.h"
#include "ops/cuda/linear/linear.h"

namespace winnow::model::cuda {

/// The arithmetic of products for prompts and large batches. fp8: in layers whose weights are fp8.
/// The head stays in bf16, because its errors are the logits' errors; so do experts and routers.
enum class Arithmetic : std::uint8_t { bf16, fp8 };

/// Row-major weights, in bf16 or as fp8 codes. A DeviceWeight has the order in which steps of few
/// sequences read it. So either this holds a second copy of each, or it converts a weight on each
/// use. That moves the weight twice more: little compared with a long prompt's work, but most of a
/// large batch's. In fp8, LargeProducts then reads the weights in the stored order, for up to 256
/// rows.
class MatrixWeights {
 public:
  /// For `model`, which must outlive this. with_copies: copies every matrix that a step uses,
  /// except experts, whose products read the stored order.
  MatrixWeights(const DeviceModel& model, bool with_copies,
                Arithmetic arithmetic = Arithmetic::bf16);

  /// Bytes of all copies.
  static std::size_t copy_bytes(const DeviceModel& model, Arithmetic arithmetic);

  [[nodiscard]] Arithmetic arithmetic() const { return arithmetic_; }
  [[nodiscard]] bool has_copies() const { return !copies_.empty(); }
  /// Whether a layer's weight is multiplied in fp8: then use codes(), not rows() and all().
  [[nodiscard]] bool in_fp8(const ops::cuda::DeviceWeightView& weight) const;

  /// Rows [first, first + count), valid until the next call, written in the order of `stream`.
  /// count is at most most_rows().
  const bf16* rows(const ops::cuda::DeviceWeightView& weight, int first, int count,
                   cudaStream_t stream) const;
  /// All rows of a layer's weight.
  const bf16* all(const ops::cuda::DeviceWeightView& weight, cudaStream_t stream) const {
    return rows(weight, 0, weight.rows, stream);
  }
  /// All rows as fp8 codes.
  ops::cuda::Fp8Rows codes(const ops::cuda::DeviceWeightView& weight, cudaStream_t stream) const;
  /// The most rows of a weight at a time: all in a layer, but maybe not all rows of the head.
  [[nodiscard]] int most_rows(const ops::cuda::DeviceWeightView& weight) const;

 private:
  Arithmetic arithmetic_;
  const std::byte* head_;                          // identifies the head's weight
  std::map<const std::byte*, std::byte*> copies_;  // by the address of the original
  winnow::cuda::DeviceBuffer<std::byte> memory_;   // of all copies, or of the weight in use
};

}  // namespace winnow::model::cuda
