// Weights as cuBLASLt takes them.
#pragma once

#include <cstdint>
#include <map>

#include "model/cuda/device_model.h"
#include "ops/cuda/linear/linear.h"

namespace winnow::model::cuda {

/// Of the products of prompts and large batches. fp8: of layers whose weights are fp8. The head
/// stays in bf16, because its errors are those of the logits; so do experts and routers.
enum class Arithmetic : std::uint8_t { bf16, fp8 };

/// Weights row by row, in bf16 or as fp8 codes: a DeviceWeight lies in the order in which steps of
/// few sequences read it. Either a second copy of each is held, or each is written out whenever it
/// is asked for. That moves it twice more, which is little beside what a long prompt computes, but
/// most of what a large batch does with it; in fp8, LargeProducts then does without.
class MatrixWeights {
 public:
  /// Of `model`, which must outlive this. With copies of every matrix that a step uses, except
  /// experts, which are read in place.
  MatrixWeights(const DeviceModel& model, bool with_copies,
                Arithmetic arithmetic = Arithmetic::bf16);

  /// Bytes of all copies.
  static std::size_t copy_bytes(const DeviceModel& model, Arithmetic arithmetic);

  [[nodiscard]] Arithmetic arithmetic() const { return arithmetic_; }
  [[nodiscard]] bool has_copies() const { return !copies_.empty(); }
  /// Whether a layer's weight is multiplied in fp8: codes() has it, not rows() and all().
  [[nodiscard]] bool in_fp8(const ops::cuda::DeviceWeightView& weight) const;

  /// Rows [first, first + count), valid until the next call, in the order of `stream`. count is at
  /// most most_rows().
  const bf16* rows(const ops::cuda::DeviceWeightView& weight, int first, int count,
                   cudaStream_t stream) const;
  /// A layer's weight as a whole.
  const bf16* all(const ops::cuda::DeviceWeightView& weight, cudaStream_t stream) const {
    return rows(weight, 0, weight.rows, stream);
  }
  /// The same as codes.
  ops::cuda::Fp8Rows codes(const ops::cuda::DeviceWeightView& weight, cudaStream_t stream) const;
  /// Rows of a weight that there is room for: all of a layer's, not always all of the head's.
  [[nodiscard]] int most_rows(const ops::cuda::DeviceWeightView& weight) const;

 private:
  Arithmetic arithmetic_;
  const std::byte* head_;                          // which of the weights it is
  std::map<const std::byte*, std::byte*> copies_;  // by what they are copies of
  winnow::cuda::DeviceBuffer<std::byte> memory_;   // of the copies, or of the weight that is in use
};

}  // namespace winnow::model::cuda
