#include "train/cuda/decoder.h"

#include "ops/cuda/embedding.h"
#include "ops/cuda/general/elementwise.h"
#include "train/cuda_memory/decoder.h"

namespace winnow::train::cuda {

DeviceDecoder::DeviceDecoder(const model::ModelSpec& spec, std::size_t tokens, Keep keep)
    : spec_(spec),
      stream_size_(tokens * static_cast<std::size_t>(spec.hidden)),
      keep_(keep),
      shared_(spec, tokens, keep != Keep::nothing),
      layer_inputs_(spec, {spec, tokens, keep != Keep::nothing}),
      streams_(kept_streams(spec, keep) * stream_size_) {
  for (std::size_t i = 0; i < kept_layers(spec, keep); ++i) {
    activations_.emplace_back(spec, tokens);
  }
}

float* DeviceDecoder::input(int layer) const {
  const std::size_t stream = keep_ == Keep::nothing ? 0 : static_cast<std::size_t>(layer);
  return streams_.data() + stream * stream_size_;
}

DevicePass DeviceDecoder::pass_of(const DevicePass& pass, int layer) const {
  DevicePass own = pass;
  own.layer = layer;
  own.shared = shared_.entries_of(layer);
  own.shared_gradients = shared_.gradients_of(layer);
  own.embedding = layer_inputs_.of_layer(layer);
  return own;
}

template <class Body>
void DeviceDecoder::walk_forward(const Body& body) const {
  access->open(kEmbeddingPlace, 0);
  body(kEmbeddingPlace);
  for (int layer = 0; layer < spec_.layer_count(); ++layer) {
    access->open(layer, layer + 1);
    body(layer);
  }
}

template <class Body>
void DeviceDecoder::walk_backward(bool with_embedding, const Body& body) const {
  for (int layer = spec_.layer_count() - 1; layer >= 0; --layer) {
    access->open(layer, layer - 1);
    access->open_gradients(layer);
    body(layer);
    access->close_gradients(layer);
  }
  if (with_embedding) {
    access->open_gradients(kEmbeddingPlace);
  }
  body(kEmbeddingPlace);
  if (with_embedding) {
    access->close_gradients(kEmbeddingPlace);
  }
}

void DeviceDecoder::skip_forward() const {
  walk_forward([](int) {});
}

void DeviceDecoder::skip_backward(bool with_embedding) const {
  walk_backward(with_embedding, [](int) {});
}

void DeviceDecoder::forward(const DevicePass& pass, const DeviceWeights& weights,
                            const std::int32_t* tokens) {
  walk_forward([&](int place) {
    if (place == kEmbeddingPlace) {
      return embed(pass, weights, tokens);
    }
    layer_forward(pass_of(pass, place), weights.layers[static_cast<std::size_t>(place)],
                  input(place), activations(place), input(place + 1));
  });
}

void DeviceDecoder::embed(const DevicePass& pass, const DeviceWeights& weights,
                          const std::int32_t* tokens) {
  ops::cuda::embed(input(0), weights.embedding, tokens, pass.tokens, spec_.hidden, pass.stream);
  if (spec_.embedding_multiplier != 1.0F) {
    ops::cuda::scale(input(0), stream_size_, spec_.embedding_multiplier, pass.stream);
  }
  layer_inputs_.forward(pass, weights, tokens, input(0));
}

void DeviceDecoder::backward(const DevicePass& pass, const DeviceWeights& weights,
                             const std::int32_t* tokens, const DeviceGradients& gradients,
                             const StreamGradient& gradient) {
  shared_.clear_gradients(pass.stream);
  walk_backward(gradients.embedding != nullptr, [&](int place) {
    if (place == kEmbeddingPlace) {
      return embed_backward(pass, weights, tokens, gradients, gradient);
    }
    const auto index = static_cast<std::size_t>(place);
    DevicePass of_layer = pass_of(pass, place);
    if (keep_ == Keep::inputs) {
      of_layer.recomputed = true;
      DevicePass again = of_layer;
      again.marked = nullptr;  // do not count a second time
      layer_forward(again, weights.layers[index], input(place), activations(place), nullptr);
    }
    layer_backward(of_layer, weights.layers[index], input(place), activations(place),
                   gradients.layers[index], gradient);
  });
}

void DeviceDecoder::embed_backward(const DevicePass& pass, const DeviceWeights& weights,
                                   const std::int32_t* tokens, const DeviceGradients& gradients,
                                   const StreamGradient& gradient) {
  layer_inputs_.backward(pass, weights, tokens, input(0), gradients, gradient.exact);
  if (spec_.embedding_multiplier != 1.0F) {
    ops::cuda::scale(gradient.exact, stream_size_, spec_.embedding_multiplier, pass.stream);
  }
  if (gradients.embedding != nullptr) {
    ops::cuda::embed_backward(gradients.embedding, gradient.exact, tokens, pass.tokens,
                              spec_.hidden, pass.stream);
  }
}

}  // namespace winnow::train::cuda
