#include "train/fp8_matrices.h"

#include <algorithm>

#include "base/error.h"
#include "train/backend.h"
#include "train/pass_parts.h"

namespace winnow::train {
namespace {

using Place = Fp8Matrix::Place;

std::size_t side(int length) {
  return static_cast<std::size_t>(length);
}

// Experts add to the gradient of the inputs that they share with a dense network, and products that
// add are in bf16. Experts beside it have inputs of their own.
bool adds_to_input_gradient(const model::FeedForwardSpec& network) {
  return network.experts && !network.experts->beside;
}

// The matrices of a layer, whatever their widths.
std::vector<Fp8Matrix> matrices_of_layer(const model::ModelSpec& spec, int index) {
  const model::LayerSpec& layer = spec.layer(index);
  const model::FeedForwardSpec& network = layer.feed_forward;
  const int hidden = spec.hidden;
  std::vector<Fp8Matrix> matrices;
  const auto add = [&](Place place, int outputs, int inputs) {
    matrices.push_back({.layer = index, .place = place, .outputs = outputs, .inputs = inputs});
  };
  if (const model::AttentionSpec* attention = layer.attention()) {
    add(Place::projections, detail::qkv_width(*attention), hidden);
    add(Place::output, hidden, attention->output_width());
  } else {
    const model::RecurrentSpec& recurrent = *layer.recurrent();
    const int width = recurrent.heads.value_width();
    add(Place::projections, recurrent.channels() + width, hidden);
    add(Place::output, hidden, width);
  }
  if (const int inner = network.dense_width(); inner > 0) {
    add(Place::first, network.gated ? 2 * inner : inner, hidden);
    add(Place::down, hidden, inner);
  }
  return matrices;
}

// `backward`: gradients of the inputs are computed.
void add_matrices(std::vector<Fp8Matrix>& all, const model::ModelSpec& spec, bool trained,
                  bool backward) {
  for (int index = 0; index < spec.layer_count(); ++index) {
    const bool adds = adds_to_input_gradient(spec.layer(index).feed_forward);
    for (Fp8Matrix matrix : matrices_of_layer(spec, index)) {
      if (matrix.outputs % kFp8Width == 0 && matrix.inputs % kFp8Width == 0) {
        matrix.trained = trained;
        matrix.transposed = backward && !(adds && matrix.place == Place::first);
        all.push_back(matrix);
      }
    }
  }
}

}  // namespace

std::vector<Fp8Matrix> fp8_matrices(const TrainingOptions& options, const model::ModelSpec& base) {
  const model::ModelSpec spec = student_config(options, base);
  const bool trains_matrices = trained_part(spec) == Trained::everything;
  std::vector<Fp8Matrix> matrices;
  if (options.retrofit) {
    add_matrices(matrices, base, false, !trains_matrices);
  }
  if (trains_matrices) {
    add_matrices(matrices, spec, true, true);
  }
  return matrices;
}

void require_fp8_widths(const TrainingOptions& options, const model::ModelSpec& spec) {
  require(!options.fp8_products || spec.hidden % kFp8Width == 0,
          "--dtype fp8: the model has {} hidden channels, products in fp8 need a multiple of {}",
          spec.hidden, kFp8Width);
}

Fp8Memory::Fp8Memory(const TrainingOptions& options, const std::vector<Fp8Matrix>& matrices)
    : row_scales(options.micro_batch * options.length) {
  for (const Fp8Matrix& matrix : matrices) {
    const std::size_t outputs = side(matrix.outputs);
    const std::size_t inputs = side(matrix.inputs);
    codes += outputs * inputs * (matrix.transposed ? 2 : 1);
    scales += outputs + (matrix.transposed ? inputs : 0);
    column_maxima = std::max({column_maxima, outputs, inputs});
  }
  row_codes = row_scales * column_maxima;
}

std::size_t Fp8Memory::bytes() const {
  return (codes + row_codes) * sizeof(std::uint8_t) +
         (scales + row_scales + column_maxima) * sizeof(float);
}

std::size_t fp8_bytes(const TrainingOptions& options, const model::ModelSpec& base) {
  return Fp8Memory(options, fp8_matrices(options, base)).bytes();
}

}  // namespace winnow::train
