// Copies of the layers' matrices as e4m3 codes, for products in fp8.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/cuda/device.h"
#include "ops/cuda/linear/fp8_rows.h"
#include "train/cuda/device_tensors.h"
#include "train/options.h"

namespace winnow::train::cuda {

/// Widths of matrices in fp8 products are multiples of this.
inline constexpr int kFp8Width = 16;

/// A matrix of a layer [outputs, inputs] and its copies.
struct Fp8Copy {
  const bf16* matrix = nullptr;
  int outputs = 0;
  int inputs = 0;
  bool trained = false;               // its values change
  bool backward = false;              // gradients of its inputs are computed, which read `columns`
  ops::cuda::Fp8RowsTo rows = {};     // [outputs, inputs], a scale for each output
  ops::cuda::Fp8RowsTo columns = {};  // [inputs, outputs], a scale for each input
};

/// The copies of a student's and a teacher's matrices: of attention, recurrent mixers, dense
/// networks and shared experts, if both sides are multiples of kFp8Width. The student of an adapter
/// has the teacher's.
class Fp8Copies {
 public:
  /// Copies the matrices that are not trained; refresh() must follow. `teacher` has no layers
  /// without distillation. The matrices must stay where they are.
  Fp8Copies(const TrainingOptions& options, const model::ModelSpec& base,
            const DeviceWeights& teacher, const DeviceWeights& student, cudaStream_t stream);
  /// The bytes that it takes on a device.
  static std::size_t bytes(const TrainingOptions& options, const model::ModelSpec& base);

  /// Copies the present values of matrices that are trained.
  void refresh(cudaStream_t stream) const { copy(true, stream); }
  /// The copy of a matrix; null: its products are in bf16.
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
  winnow::cuda::DeviceBuffer<float> largest_;           // [widest side]: scratch of columns
};

}  // namespace winnow::train::cuda
