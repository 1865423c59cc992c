#include "model/spec.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>

namespace winnow::model {

const AttentionSpec& ModelSpec::attention() const {
  const auto found = std::ranges::find_if(
      layers, [](const LayerSpec& layer) { return layer.attention() != nullptr; });
  assert(found != layers.end());
  return *found->attention();
}

const RecurrentSpec* ModelSpec::recurrent() const {
  const auto found = std::ranges::find_if(
      layers, [](const LayerSpec& layer) { return layer.recurrent() != nullptr; });
  return found == layers.end() ? nullptr : found->recurrent();
}

int ModelSpec::dense_width() const {
  int widest = 0;
  for (const LayerSpec& layer : layers) {
    widest = std::max(widest, layer.feed_forward.dense_width());
  }
  return widest;
}

const FeedForwardSpec* ModelSpec::experts() const {
  const auto found = std::ranges::find_if(
      layers, [](const LayerSpec& layer) { return layer.feed_forward.experts.has_value(); });
  return found == layers.end() ? nullptr : &found->feed_forward;
}

const AttentionSpec& ModelSpec::compressing_attention() const {
  const auto found = std::ranges::find_if(layers, &LayerSpec::compresses);
  const AttentionSpec* compresses = found == layers.end() ? nullptr : found->attention();
  return compresses != nullptr ? *compresses : attention();
}

int ModelSpec::cached_head_dim() const {
  constexpr int kMultiple = 8;  // PageLayout's
  int widest = 0;
  for (const LayerSpec& layer : layers) {
    widest = std::max(widest, layer.stores() ? layer.attention()->head_dim : 0);
  }
  return (widest + kMultiple - 1) / kMultiple * kMultiple;
}

bool ModelSpec::has_equal_heads() const {
  return std::ranges::all_of(layers, [this](const LayerSpec& layer) {
    return layer.attention() == nullptr || layer.attention()->has_heads_of(attention());
  });
}

std::set<int> ModelSpec::shared_layers() const {
  std::set<int> shared;
  for (const LayerSpec& layer : layers) {
    if (layer.attention() != nullptr && layer.attention()->shares) {
      shared.insert(*layer.attention()->shares);
    }
  }
  return shared;
}

float LayerEmbeddings::scale() const {
  return std::sqrt(static_cast<float>(width));
}

int ModelSpec::layer_embeddings_width() const {
  return layer_embeddings ? layer_count() * layer_embeddings->width : 0;
}

float ModelSpec::stream_scale() const {
  return 1.0F / std::sqrt(static_cast<float>(hidden));
}

int ModelSpec::chunk() const {
  const auto found =
      std::ranges::find_if(layers, [](const LayerSpec& layer) { return layer.chunk() != 0; });
  return found == layers.end() ? 0 : found->chunk();
}

int ModelSpec::attention_before(int index) const {
  return static_cast<int>(std::count_if(layers.begin(), layers.begin() + index,
                                        [](const LayerSpec& layer) { return layer.stores(); }));
}

int ModelSpec::cached_heads_before(int index) const {
  return std::accumulate(layers.begin(), layers.begin() + index, 0,
                         [](int heads, const LayerSpec& layer) {
                           return heads + (layer.stores() ? layer.attention()->kv_heads : 0);
                         });
}

int ModelSpec::recurrent_before(int index) const {
  return static_cast<int>(
      std::count_if(layers.begin(), layers.begin() + index,
                    [](const LayerSpec& layer) { return layer.recurrent() != nullptr; }));
}

int ModelSpec::compressing_before(int index) const {
  return static_cast<int>(std::count_if(layers.begin(), layers.begin() + index,
                                        [](const LayerSpec& layer) { return layer.compresses(); }));
}

}  // namespace winnow::model
