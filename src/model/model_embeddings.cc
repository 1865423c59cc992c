// A Model's embeddings: of tokens, and those of each layer.
#include <algorithm>

#include "base/error.h"
#include "model/activations.h"
#include "model/mixer_parts.h"
#include "model/norms.h"
#include "model/rank_sums.h"
#include "ops/activation.h"
#include "ops/linear.h"

namespace winnow::model {

void Model::embed(const ops::Context& context, std::span<const SequenceStep> steps,
                  ops::Matrix<float> hidden) const {
  const Range own = part_ ? share_of(vocab(), part_->shard) : Range{0, vocab()};
  std::size_t row = 0;
  for (const SequenceStep& step : steps) {
    for (const std::int32_t token : step.tokens) {
      require(token >= 0 && token < vocab(), "token {} is outside the vocabulary of {} tokens",
              token, vocab());
      const auto to = hidden.row(row++);
      if (token >= own.begin && token < own.end) {
        ops::dequantize_row(weights_.embedding, token - own.begin, to.data());
      } else {
        std::ranges::fill(to, 0.0F);  // another rank has it
      }
    }
  }
  sum_over_ranks(context, hidden);
  if (spec_.embedding_multiplier != 1.0F) {
    ops::scale(hidden, spec_.embedding_multiplier);
  }
}

// The embeddings for each layer (LayerEmbeddings): each layer gets a part of `layer_inputs`.
void Model::embed_for_layers(ops::Context& context, std::span<const SequenceStep> steps,
                             Activations& a) const {
  const LayerEmbeddings& what = *spec_.layer_embeddings;
  const auto width = static_cast<std::size_t>(what.width);
  a.layer_inputs = take_matrix(*context.workspace, a.hidden.rows, spec_.layer_count() * what.width);
  const ops::Matrix<float> parts(
      a.layer_inputs.data, a.hidden.rows * static_cast<std::size_t>(spec_.layer_count()), width);
  ops::linear(context, a.layer_inputs, a.hidden, weights_.layer_projection);
  ops::scale(parts, spec_.stream_scale());
  normalize(spec_.final_norm, parts, parts, weights_.layer_projection_norm);
  const ops::Workspace::Scope scope(*context.workspace);
  const auto row = context.workspace->take<float>(a.layer_inputs.cols);
  const float scale = what.scale();
  std::size_t t = 0;
  for (const SequenceStep& step : steps) {
    for (const std::int32_t token : step.tokens) {
      require(token < what.vocab, "token {} has no embedding for layers: there are {}", token,
              what.vocab);
      ops::dequantize_row(weights_.layer_embedding, token, row.data());
      const auto inputs = a.layer_inputs.row(t++);
      std::ranges::transform(inputs, row, inputs.begin(), [scale](float input, float embedding) {
        return (input + scale * embedding) * LayerEmbeddings::kHalves;
      });
    }
  }
}

// Adds the output for the layer's own embedding to the stream.
void Model::add_layer_embedding(ops::Context& context, int layer, const Activations& a) const {
  const LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
  const LayerSpec& spec = spec_.layer(layer);
  const int width = spec_.layer_embeddings->width;
  const ops::Workspace::Scope scope(*context.workspace);
  const auto gates = take_matrix(*context.workspace, a.hidden.rows, width);
  const auto branch = take_matrix(*context.workspace, a.hidden.rows, spec_.hidden);
  ops::linear(context, gates, a.hidden, w.embedding_gate);
  ops::activate_multiply({spec.feed_forward.activation}, gates,
                         columns(a.layer_inputs, layer * width, width));
  ops::linear(context, branch, gates, w.embedding_output);
  normalize(spec.norm, branch, branch, w.embedding_norm);
  ops::add(a.hidden, branch);
}

}  // namespace winnow::model
