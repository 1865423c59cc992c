#include "model/cuda/matrix_weights.h"

#include <algorithm>
#include <vector>

namespace winnow::model::cuda {
namespace {

using ops::cuda::DeviceWeightView;

std::vector<DeviceWeightView> layer_matrices(const DeviceModel& model) {
  std::vector<DeviceWeightView> result;
  if (model.weights().layer_projection.bytes() > 0) {
    result.push_back(model.weights().layer_projection.view());
  }
  for (const DeviceLayerWeights& layer : model.weights().layers) {
    for (const auto* weight : {&layer.qkv, &layer.output_gate, &layer.output, &layer.gate_up,
                               &layer.down, &layer.embedding_gate, &layer.embedding_output}) {
      if (weight->bytes() > 0) {
        result.push_back(weight->view());
      }
    }
  }
  return result;
}

std::vector<DeviceWeightView> all_matrices(const DeviceModel& model) {
  auto result = layer_matrices(model);
  result.push_back(model.weights().head());
  return result;
}

// Rows of a block, so that the products of each begin at 256 bytes.
constexpr int kBlockRows = 64;

// Where the next matrix may begin: cuBLASLt wants 256 bytes.
std::size_t elements(const DeviceWeightView& weight) {
  constexpr std::size_t kAligned = 256 / sizeof(bf16);
  const auto count = static_cast<std::size_t>(weight.rows) * static_cast<std::size_t>(weight.cols);
  return (count + kAligned - 1) / kAligned * kAligned;
}

}  // namespace

MatrixWeights::MatrixWeights(const DeviceModel& model, bool with_copies) {
  if (!with_copies) {
    // A layer's largest matrix, and what most_rows() takes of the head at least.
    const auto matrices = layer_matrices(model);
    const auto block = kBlockRows * static_cast<std::size_t>(model.weights().head().cols);
    memory_ = winnow::cuda::DeviceBuffer<bf16>(
        std::max(block, elements(std::ranges::max(matrices, {}, elements))));
    return;
  }
  memory_ = winnow::cuda::DeviceBuffer<bf16>(copy_bytes(model) / sizeof(bf16));
  const winnow::cuda::Stream stream;
  bf16* next = memory_.data();
  for (const DeviceWeightView& weight : all_matrices(model)) {
    ops::cuda::dequantize(weight, 0, weight.rows, next, stream.get());
    copies_[weight.memory] = next;
    next += elements(weight);
  }
  stream.synchronize();
}

std::size_t MatrixWeights::copy_bytes(const DeviceModel& model) {
  std::size_t total = 0;
  for (const DeviceWeightView& weight : all_matrices(model)) {
    total += elements(weight) * sizeof(bf16);
  }
  return total;
}

const bf16* MatrixWeights::rows(const DeviceWeightView& weight, int first, int count,
                                cudaStream_t stream) const {
  if (const auto copy = copies_.find(weight.memory); copy != copies_.end()) {
    return copy->second + static_cast<std::size_t>(first) * static_cast<std::size_t>(weight.cols);
  }
  ops::cuda::dequantize(weight, first, count, memory_.data(), stream);
  return memory_.data();
}

int MatrixWeights::most_rows(const DeviceWeightView& weight) const {
  if (copies_.contains(weight.memory)) {
    return weight.rows;
  }
  const auto room = static_cast<int>(memory_.size() / static_cast<std::size_t>(weight.cols));
  return room >= weight.rows ? weight.rows : room / kBlockRows * kBlockRows;
}

}  // namespace winnow::model::cuda
