#include "train/decoder.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "ops/activation.h"
#include "train/embedding.h"

namespace winnow::train {
namespace {

std::size_t streams(const model::ModelSpec& spec, Keep keep) {
  return keep == Keep::nothing ? 1 : static_cast<std::size_t>(spec.layer_count()) + 1;
}

std::size_t kept_layers(const model::ModelSpec& spec, Keep keep) {
  return keep == Keep::all ? static_cast<std::size_t>(spec.layer_count()) : 1;
}

std::size_t stream_size(const model::ModelSpec& spec, std::size_t tokens) {
  return tokens * static_cast<std::size_t>(spec.hidden);
}

std::vector<std::int32_t> positions_of(const Batch& batch) {
  std::vector<std::int32_t> positions(batch.size());
  for (std::size_t t = 0; t < positions.size(); ++t) {
    positions[t] = static_cast<std::int32_t>(t) - batch.first_key[t];
  }
  return positions;
}

// The first key of each token's chunk.
std::vector<std::int32_t> chunk_keys_of(std::span<const std::int32_t> positions, int width) {
  std::vector<std::int32_t> keys(positions.size());
  for (std::size_t t = 0; t < keys.size(); ++t) {
    keys[t] = static_cast<std::int32_t>(t) - positions[t] % width;
  }
  return keys;
}

}  // namespace

Decoder::Decoder(const model::ModelSpec& spec, std::size_t tokens, Keep keep)
    : spec_(spec),
      keep_(keep),
      ropes_(spec),
      shared_(spec, tokens, keep != Keep::nothing),
      layer_inputs_(spec, tokens, keep != Keep::nothing),
      memory_(streams(spec, keep) * stream_size(spec, tokens)) {
  for (std::size_t i = 0; i < streams(spec, keep); ++i) {
    inputs_.emplace_back(memory_.data() + i * stream_size(spec, tokens), tokens,
                         static_cast<std::size_t>(spec.hidden));
  }
  for (std::size_t i = 0; i < kept_layers(spec, keep); ++i) {
    activations_.emplace_back(spec, tokens);
  }
}

std::size_t Decoder::bytes(const model::ModelSpec& spec, std::size_t tokens, Keep keep) {
  return streams(spec, keep) * stream_size(spec, tokens) * sizeof(float) +
         kept_layers(spec, keep) * LayerActivations::bytes(spec, tokens) +
         SharedEntries::bytes(spec, tokens, keep != Keep::nothing) +
         LayerInputs::bytes(spec, tokens, keep != Keep::nothing);
}

ops::Matrix<const float> Decoder::input(int layer) const {
  return inputs_[std::min(static_cast<std::size_t>(layer), inputs_.size() - 1)];
}

LayerPass Decoder::pass_of(const Batch& batch, const DecisionPass& decisions, int layer) const {
  const int table = ropes_.table_of(layer);
  const auto chunks = chunk_keys_.find(spec_.layer(layer).chunk());
  return {.spec = &spec_,
          .angles = table < 0 ? nullptr : &angles_[static_cast<std::size_t>(table)],
          .positions = positions_,
          .first_key =
              chunks == chunk_keys_.end() ? std::span(batch.first_key) : std::span(chunks->second),
          .decisions = decisions,
          .layer = layer,
          .shared = shared_.entries_of(layer),
          .shared_gradients = shared_.gradients_of(layer),
          .embedding = layer_inputs_.input_of(layer),
          .embedding_gradient = layer_inputs_.gradient_of(layer)};
}

void Decoder::open(int layer) const {
  if (access != nullptr) {
    access->open(layer);
  }
}

LayerActivations& Decoder::activations(int layer) {
  LayerActivations& activations =
      activations_[keep_ == Keep::all ? static_cast<std::size_t>(layer) : 0];
  activations.fit(spec_, layer);
  return activations;
}

void Decoder::forward(ops::Context& context, const Weights& weights, const Batch& batch,
                      const DecisionPass& decisions) {
  assert(batch.size() == inputs_.front().rows);
  positions_ = positions_of(batch);
  angles_ = ropes_.angles(positions_);
  chunk_keys_.clear();
  for (const model::LayerSpec& layer : spec_.layers) {
    if (const int width = layer.chunk(); width > 0 && !chunk_keys_.contains(width)) {
      chunk_keys_[width] = chunk_keys_of(positions_, width);
    }
  }
  decided_ = {};
  embed(weights.embedding, batch, inputs_.front());
  if (spec_.embedding_multiplier != 1.0F) {
    ops::scale(inputs_.front(), spec_.embedding_multiplier);
  }
  layer_inputs_.forward(context, weights, batch, inputs_.front());
  for (int layer = 0; layer < spec_.layer_count(); ++layer) {
    const auto index = static_cast<std::size_t>(layer);
    const ops::Matrix<float>& output = keep_ == Keep::nothing ? inputs_[0] : inputs_[index + 1];
    open(layer);
    layer_forward(context, pass_of(batch, decisions, layer), weights.layers[index], input(layer),
                  activations(layer), output);
    if (spec_.decides(layer) && decisions.mode != DecisionPass::Mode::off) {
      count_decisions(activations(layer));
    }
  }
}

void Decoder::count_decisions(const LayerActivations& activations) {
  const ops::Matrix<float>& noisy = activations.noisy;
  std::vector<std::int64_t> marked(noisy.cols);
  for (std::size_t t = 0; t < noisy.rows; ++t) {
    for (std::size_t d = 0; d < noisy.cols; ++d) {
      const float z = noisy.row(t)[d];
      marked[d] += z > 0.0F ? 1 : 0;
      decided_.soft_marked += 1.0 / (1.0 + std::exp(-double{z}));
    }
  }
  decided_.marked.insert(decided_.marked.end(), marked.begin(), marked.end());
  decided_.excess += excess_of(activations.logits, excess_limit);
}

void Decoder::backward(ops::Context& context, const Weights& weights, const Batch& batch,
                       const DecisionPass& decisions, std::span<const DecisionLoss> losses,
                       const Gradients& gradients, ops::Matrix<float> gradient) {
  assert(keep_ != Keep::nothing);
  shared_.clear_gradients();
  for (int layer = spec_.layer_count() - 1; layer >= 0; --layer) {
    const auto index = static_cast<std::size_t>(layer);
    const LayerPass pass = pass_of(batch, decisions, layer);
    open(layer);
    if (keep_ == Keep::inputs) {
      layer_forward(context, pass, weights.layers[index], input(layer), activations(layer), {});
    }
    layer_backward(context, pass, weights.layers[index], input(layer), activations(layer),
                   losses.empty() || !spec_.decides(layer)
                       ? DecisionLoss{}
                       : losses[static_cast<std::size_t>(spec_.compressing_before(layer))],
                   gradients.layers[index], gradient);
    if (access != nullptr) {
      access->close(layer);
    }
  }
  layer_inputs_.backward(context, weights, batch, input(0), gradients, gradient);
  if (spec_.embedding_multiplier != 1.0F) {
    ops::scale(gradient, spec_.embedding_multiplier);
  }
  embed_backward(gradients.embedding, batch, gradient);
}

}  // namespace winnow::train
