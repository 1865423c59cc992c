#include "train/cuda/fp8_copies.h"

#include <algorithm>

#include "ops/cuda/linear/fp8_columns.h"
#include "train/backend.h"
#include "train/cuda/layer_parts.h"

namespace winnow::train::cuda {
namespace {

std::size_t side(int length) {
  return static_cast<std::size_t>(length);
}

// The matrices of a layer's attention or recurrent mixer, and of its dense network.
std::vector<Fp8Copy> copies_of_layer(const model::ModelSpec& spec, const model::LayerSpec& layer,
                                     const DeviceLayerWeights& weights) {
  const int hidden = spec.hidden;
  const model::FeedForwardSpec& network = layer.feed_forward;
  std::vector<Fp8Copy> copies;
  if (const model::AttentionSpec* attention = layer.attention()) {
    copies = {{weights.query, detail::qkv_width(*attention), hidden},
              {weights.output, hidden, attention->output_width()}};
  } else {
    const model::RecurrentSpec& recurrent = *layer.recurrent();
    const int width = recurrent.heads.value_width();
    copies = {{weights.recurrent.input, recurrent.channels() + width, hidden},
              {weights.output, hidden, width}};
  }
  if (const int inner = network.dense_width(); inner > 0) {
    copies.push_back(network.gated ? Fp8Copy{weights.gate, 2 * inner, hidden}
                                   : Fp8Copy{weights.up, inner, hidden});
    copies.push_back({weights.down, hidden, inner});
  }
  return copies;
}

// Without `weights`, only sizes.
std::vector<Fp8Copy> copies_of_model(const model::ModelSpec& spec, const DeviceWeights& weights,
                                     bool trained, bool backward) {
  const DeviceLayerWeights none{};
  std::vector<Fp8Copy> copies;
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    const DeviceLayerWeights& layer = i < weights.layers.size() ? weights.layers[i] : none;
    for (Fp8Copy copy : copies_of_layer(spec, spec.layers[i], layer)) {
      if (copy.outputs % kFp8Width == 0 && copy.inputs % kFp8Width == 0) {
        copy.trained = trained;
        copy.backward = backward;
        copies.push_back(copy);
      }
    }
  }
  return copies;
}

std::vector<Fp8Copy> copies_of_run(const TrainingOptions& options, const model::ModelSpec& base,
                                   const DeviceWeights& teacher, const DeviceWeights& student) {
  const model::ModelSpec spec = student_config(options, base);
  const bool trains_matrices = trained_part(spec) == Trained::everything;
  std::vector<Fp8Copy> copies;
  if (options.retrofit) {
    copies = copies_of_model(base, teacher, false, !trains_matrices);
  }
  if (trains_matrices) {
    std::ranges::copy(copies_of_model(spec, student, true, true), std::back_inserter(copies));
  }
  return copies;
}

// What the copies take together, and the widest side of a matrix.
struct CopySizes {
  std::size_t codes = 0;
  std::size_t scales = 0;
  std::size_t widest = 0;

  explicit CopySizes(const std::vector<Fp8Copy>& copies) {
    for (const Fp8Copy& copy : copies) {
      codes += side(copy.outputs) * side(copy.inputs) * (copy.backward ? 2 : 1);
      scales += side(copy.outputs) + side(copy.backward ? copy.inputs : 0);
      widest = std::max({widest, side(copy.outputs), side(copy.inputs)});
    }
  }
};

}  // namespace

Fp8Copies::Fp8Copies(const TrainingOptions& options, const model::ModelSpec& base,
                     const DeviceWeights& teacher, const DeviceWeights& student,
                     cudaStream_t stream) {
  const auto copies = copies_of_run(options, base, teacher, student);
  const CopySizes sizes(copies);
  const std::size_t tokens = options.micro_batch * options.length;
  codes_ = winnow::cuda::DeviceBuffer<std::uint8_t>(sizes.codes);
  scales_ = winnow::cuda::DeviceBuffer<float>(sizes.scales);
  row_codes_ = winnow::cuda::DeviceBuffer<std::uint8_t>(tokens * sizes.widest);
  row_scales_ = winnow::cuda::DeviceBuffer<float>(tokens);
  largest_ = winnow::cuda::DeviceBuffer<float>(sizes.widest);
  // Sides are multiples of 16, so all pieces begin at multiples of 64 bytes.
  std::uint8_t* codes = codes_.data();
  float* scales = scales_.data();
  for (Fp8Copy copy : copies) {
    const std::size_t count = side(copy.outputs) * side(copy.inputs);
    copy.rows = {codes, scales};
    codes += count;
    scales += copy.outputs;
    if (copy.backward) {
      copy.columns = {codes, scales};
      codes += count;
      scales += copy.inputs;
    }
    copies_.emplace(copy.matrix, copy);
  }
  this->copy(false, stream);
}

std::size_t Fp8Copies::bytes(const TrainingOptions& options, const model::ModelSpec& base) {
  const CopySizes sizes(copies_of_run(options, base, {}, {}));
  const std::size_t tokens = options.micro_batch * options.length;
  return sizes.codes + tokens * sizes.widest +
         (sizes.scales + tokens + sizes.widest) * sizeof(float);
}

const Fp8Copy* Fp8Copies::find(const bf16* matrix) const {
  const auto found = copies_.find(matrix);
  return found == copies_.end() ? nullptr : &found->second;
}

void Fp8Copies::copy(bool trained, cudaStream_t stream) const {
  for (const auto& [matrix, copy] : copies_) {
    if (copy.trained != trained) {
      continue;
    }
    ops::cuda::quantize_rows(copy.rows, matrix, copy.outputs, copy.inputs, stream);
    if (copy.backward) {
      ops::cuda::quantize_columns(copy.columns, matrix, copy.outputs, copy.inputs, largest_.data(),
                                  stream);
    }
  }
}

}  // namespace winnow::train::cuda
