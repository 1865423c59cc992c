#include "model/cuda/matrix_weights.h"

#include <algorithm>
#include <vector>

#include "ops/cuda/linear/fp8_rows.h"

namespace winnow::model::cuda {
namespace {

using ops::cuda::DeviceWeightView;

std::vector<DeviceWeightView> layer_matrices(const DeviceModel& model) {
  std::vector<DeviceWeightView> result;
  for (const auto* weight :
       {&model.weights().layer_projection, &model.weights().draft_head.fusion}) {
    if (weight->bytes() > 0) {
      result.push_back(weight->view());
    }
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

// Rows of a block of the head, so that the logits of each block are aligned to 256 bytes.
constexpr int kBlockRows = 64;

// Bytes of a matrix, rounded up to the 256-byte alignment that cuBLASLt needs.
std::size_t bytes_of(const DeviceWeightView& weight, bool in_fp8) {
  constexpr std::size_t kAligned = 256;
  const auto count = static_cast<std::size_t>(weight.rows) * static_cast<std::size_t>(weight.cols);
  return (count * (in_fp8 ? 1 : sizeof(bf16)) + kAligned - 1) / kAligned * kAligned;
}

bool is_in_fp8(const DeviceWeightView& weight, Arithmetic arithmetic, const std::byte* head) {
  constexpr int kWide = 16;  // fp8 products of cuBLASLt need multiples of it in both sizes
  return arithmetic == Arithmetic::fp8 && weight.format == ops::cuda::DeviceWeightFormat::fp8 &&
         weight.memory != head && weight.rows % kWide == 0 && weight.cols % kWide == 0;
}

}  // namespace

MatrixWeights::MatrixWeights(const DeviceModel& model, bool with_copies, Arithmetic arithmetic)
    : arithmetic_(arithmetic), head_(model.weights().head().memory) {
  const auto size = [this](const DeviceWeightView& weight) {
    return bytes_of(weight, in_fp8(weight));
  };
  if (!with_copies) {
    // Room for the largest matrix of a layer, and for one block of the head at least.
    const std::size_t block =
        kBlockRows * static_cast<std::size_t>(model.weights().head().cols) * sizeof(bf16);
    memory_ = winnow::cuda::DeviceBuffer<std::byte>(
        std::max(block, size(std::ranges::max(layer_matrices(model), {}, size))));
    return;
  }
  memory_ = winnow::cuda::DeviceBuffer<std::byte>(copy_bytes(model, arithmetic));
  const winnow::cuda::Stream stream;
  std::byte* next = memory_.data();
  for (const DeviceWeightView& weight : all_matrices(model)) {
    if (in_fp8(weight)) {
      ops::cuda::copy_codes(reinterpret_cast<std::uint8_t*>(next), weight, 0, weight.rows,
                            stream.get());
    } else {
      ops::cuda::dequantize(weight, 0, weight.rows, reinterpret_cast<bf16*>(next), stream.get());
    }
    copies_[weight.memory] = next;
    next += size(weight);
  }
  stream.synchronize();
}

std::size_t MatrixWeights::copy_bytes(const DeviceModel& model, Arithmetic arithmetic) {
  std::size_t total = 0;
  for (const DeviceWeightView& weight : all_matrices(model)) {
    total += bytes_of(weight, is_in_fp8(weight, arithmetic, model.weights().head().memory));
  }
  return total;
}

bool MatrixWeights::in_fp8(const DeviceWeightView& weight) const {
  return is_in_fp8(weight, arithmetic_, head_);
}

const bf16* MatrixWeights::rows(const DeviceWeightView& weight, int first, int count,
                                cudaStream_t stream) const {
  if (const auto copy = copies_.find(weight.memory); copy != copies_.end()) {
    return reinterpret_cast<const bf16*>(copy->second) +
           static_cast<std::size_t>(first) * static_cast<std::size_t>(weight.cols);
  }
  auto* written = reinterpret_cast<bf16*>(memory_.data());
  ops::cuda::dequantize(weight, first, count, written, stream);
  return written;
}

ops::cuda::Fp8Rows MatrixWeights::codes(const DeviceWeightView& weight, cudaStream_t stream) const {
  if (const auto copy = copies_.find(weight.memory); copy != copies_.end()) {
    return {reinterpret_cast<const std::uint8_t*>(copy->second), weight.row_scales};
  }
  auto* written = reinterpret_cast<std::uint8_t*>(memory_.data());
  ops::cuda::copy_codes(written, weight, 0, weight.rows, stream);
  return {written, weight.row_scales};
}

int MatrixWeights::most_rows(const DeviceWeightView& weight) const {
  if (copies_.contains(weight.memory)) {
    return weight.rows;
  }
  const auto room =
      static_cast<int>(memory_.size() / sizeof(bf16) / static_cast<std::size_t>(weight.cols));
  return room >= weight.rows ? weight.rows : room / kBlockRows * kBlockRows;
}

}  // namespace winnow::model::cuda
