#include "train/cuda/fp8_copies.h"

#include "ops/cuda/linear/fp8_columns.h"

namespace winnow::train::cuda {
namespace {

// Where a matrix lies.
const bf16* values_of(const Fp8Matrix& matrix, const model::ModelSpec& spec,
                      const DeviceWeights& weights) {
  const DeviceLayerWeights& layer = weights.layers[static_cast<std::size_t>(matrix.layer)];
  const model::LayerSpec& of_layer = spec.layer(matrix.layer);
  switch (matrix.place) {
    case Fp8Matrix::Place::projections:
      return of_layer.attention() != nullptr ? layer.query : layer.recurrent.input;
    case Fp8Matrix::Place::output:
      return layer.output;
    case Fp8Matrix::Place::first:
      return of_layer.feed_forward.gated ? layer.gate : layer.up;
    case Fp8Matrix::Place::down:
      break;
  }
  return layer.down;
}

}  // namespace

Fp8Copies::Fp8Copies(const TrainingOptions& options, const model::ModelSpec& base,
                     const DeviceWeights& teacher, const DeviceWeights& student,
                     cudaStream_t stream) {
  const auto matrices = fp8_matrices(options, base);
  const Fp8Memory memory(options, matrices);
  codes_ = winnow::cuda::DeviceBuffer<std::uint8_t>(memory.codes);
  scales_ = winnow::cuda::DeviceBuffer<float>(memory.scales);
  row_codes_ = winnow::cuda::DeviceBuffer<std::uint8_t>(memory.row_codes);
  row_scales_ = winnow::cuda::DeviceBuffer<float>(memory.row_scales);
  column_maxima_ = winnow::cuda::DeviceBuffer<float>(memory.column_maxima);
  // Sides are multiples of 16, so all pieces begin at multiples of 64 bytes.
  ops::cuda::Fp8RowsTo next{codes_.data(), scales_.data()};
  const auto take = [&next](int rows, int cols) {
    const ops::cuda::Fp8RowsTo taken = next;
    next.codes += static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols);
    next.scales += rows;
    return taken;
  };
  for (const Fp8Matrix& matrix : matrices) {
    Fp8Copy copy{.matrix = matrix, .rows = take(matrix.outputs, matrix.inputs), .columns = {}};
    if (matrix.transposed) {
      copy.columns = take(matrix.inputs, matrix.outputs);
    }
    copies_.emplace(values_of(matrix, base, matrix.trained ? student : teacher), copy);
  }
  this->copy(false, stream);
}

const Fp8Copy* Fp8Copies::find(const bf16* matrix) const {
  const auto found = copies_.find(matrix);
  return found == copies_.end() ? nullptr : &found->second;
}

void Fp8Copies::copy(bool trained, cudaStream_t stream) const {
  for (const auto& [values, copy] : copies_) {
    const Fp8Matrix& matrix = copy.matrix;
    if (matrix.trained != trained) {
      continue;
    }
    ops::cuda::quantize_rows(copy.rows, values, matrix.outputs, matrix.inputs, stream);
    if (matrix.transposed) {
      ops::cuda::quantize_columns(copy.columns, values, matrix.outputs, matrix.inputs,
                                  column_maxima_.data(), stream);
    }
  }
}

}  // namespace winnow::train::cuda
