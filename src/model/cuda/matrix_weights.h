// Weights as cuBLASLt takes them.
#pragma once

#include <map>

#include "model/cuda/device_model.h"

namespace winnow::model::cuda {

/// Weights row by row in bf16: a DeviceWeight lies in the order in which steps of few sequences
/// read it. Either a second copy of each is held, or each is written out whenever it is asked for.
/// That moves it twice more, which is little beside what a long prompt computes, but most of what a
/// large batch does with it.
class MatrixWeights {
 public:
  /// Of `model`, which must outlive this. With copies of every matrix that a step uses, except
  /// experts, which are read in place.
  MatrixWeights(const DeviceModel& model, bool with_copies);

  /// Bytes of all copies.
  static std::size_t copy_bytes(const DeviceModel& model);

  /// Rows [first, first + count), valid until the next call, in the order of `stream`. count is at
  /// most most_rows().
  const bf16* rows(const ops::cuda::DeviceWeightView& weight, int first, int count,
                   cudaStream_t stream) const;
  /// A layer's weight as a whole.
  const bf16* all(const ops::cuda::DeviceWeightView& weight, cudaStream_t stream) const {
    return rows(weight, 0, weight.rows, stream);
  }
  /// Rows of a weight that there is room for: all of a layer's, not always all of the head's.
  [[nodiscard]] int most_rows(const ops::cuda::DeviceWeightView& weight) const;

 private:
  std::map<const std::byte*, const bf16*> copies_;  // by what they are copies of
  winnow::cuda::DeviceBuffer<bf16> memory_;  // of the copies, or of the weight that is in use
};

}  // namespace winnow::model::cuda
