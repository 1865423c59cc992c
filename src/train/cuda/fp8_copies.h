// Copies of the layers' matrices as e4m3 codes, for products in fp8.
#pragma once

#include <cstdint>
#include <map>

#include "base/cuda/device.h"
#include "ops/cuda/linear/fp8_rows.h"
#include "train/cuda/device_tensors.h"
#include "train/fp8_matrices.h"

namespace winnow::train::cuda {

/// The copies of one matrix.
struct Fp8Copy {
  Fp8Matrix matrix;
  ops::cuda::Fp8RowsTo rows;     // [outputs, inputs], a scale for each output
  ops::cuda::Fp8RowsTo columns;  // if it is transposed, [inputs, outputs], a scale for each input
};

/// The copies of fp8_matrices().
class Fp8Copies {
 public:
  /// Copies the matrices that are not trained; refresh() must follow. `teacher` has no layers
  /// without distillation. The matrices must stay where they are.
  Fp8Copies(const TrainingOptions& options, const model::ModelSpec& base,
            const DeviceWeights& teacher, const DeviceWeights& student, cudaStream_t stream);

  /// Copies the present values of matrices that are trained.
  void refresh(cudaStream_t stream) const { copy(true, stream); }
  /// The copies of a matrix; null: its products are in bf16.
  [[nodiscard]] const Fp8Copy* find(const bf16* matrix) const;

  /// Room for the rows of one product as codes: one for each token, at most as wide as a matrix.
  [[nodiscard]] ops::cuda::Fp8RowsTo row_codes() const {
    return {row_codes_.data(), row_scales_.data()};
  }

 private:
  void copy(bool trained, cudaStream_t stream) const;

  std::map<const bf16*, Fp8Copy> copies_;  // by the address of the matrix
  winnow::cuda::DeviceBuffer<std::uint8_t> codes_;
  winnow::cuda::DeviceBuffer<float> scales_;
  winnow::cuda::DeviceBuffer<std::uint8_t> row_codes_;  // [tokens, widest side]
  winnow::cuda::DeviceBuffer<float> row_scales_;        // [tokens]
  winnow::cuda::DeviceBuffer<float> column_maxima_;     // [widest side]: scratch
};

}  // namespace winnow::train::cuda
