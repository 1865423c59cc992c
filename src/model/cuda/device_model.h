// A model on a device: weights, and what its layers ask of the kernels.
#pragma once

#include <set>
#include <span>

#include "kvcache/cuda/append/projection.h"
#include "model/cuda/device_weights.h"
#include "model/model.h"
#include "parallel/cuda/device_ranks.h"

namespace winnow::model::cuda {

/// Rotary angles of a step's tokens: a table [tokens, rotary_channels() / 2] for each RoPE of the
/// model, the next one `stride` elements behind.
struct StepAngles {
  const float2* tables = nullptr;
  std::size_t stride = 0;
};

class DeviceModel {
 public:
  /// Copies the weights of `model`, which must outlive this, to the current device. Throws Error
  /// when there are no kernels for it. Of a rank's part: `ranks`, which must outlive this, too.
  DeviceModel(const Model& model, ops::cuda::DeviceWeightFormat format,
              parallel::cuda::DeviceRanks* ranks = nullptr);

  /// The ranks that have the other parts; null where this is the whole model.
  [[nodiscard]] parallel::cuda::DeviceRanks* ranks() const { return ranks_; }

  [[nodiscard]] const ModelSpec& spec() const { return model_.spec(); }
  /// Whether fast paths know all that the layers do beside attention (beyond_plain(); norms whose
  /// weights count from 1 are stored as what they multiply by).
  [[nodiscard]] bool is_plain() const { return plain_; }
  /// The same of what lies between attentions, except that feed-forwards may have experts.
  [[nodiscard]] bool has_plain_layers() const { return plain_layers_; }
  [[nodiscard]] kvcache::CacheShape cache_shape() const { return model_.cache_shape(); }
  [[nodiscard]] const DeviceWeights& weights() const { return weights_; }
  [[nodiscard]] const DeviceLayerWeights& layer(int layer) const {
    return weights_.layers[static_cast<std::size_t>(layer)];
  }
  /// Of all RoPEs [rope_tables(), rotary_channels() / 2], and their attention factors.
  [[nodiscard]] const FloatBuffer& frequencies() const { return frequencies_; }
  [[nodiscard]] const FloatBuffer& rope_factors() const { return rope_factors_; }
  [[nodiscard]] int rope_tables() const { return static_cast<int>(model_.ropes().ropes().size()); }
  /// Puts the angles of tokens at `positions` [tokens] where `angles` says.
  void compute_angles(float2* tables, std::size_t stride, const std::int32_t* positions, int tokens,
                      cudaStream_t stream) const;

  /// What is done to the q, k and v of `layer`, given its input [tokens, hidden] and the rotary
  /// angles of the tokens.
  [[nodiscard]] kvcache::cuda::Projection projection(int layer, const float* hidden,
                                                     const StepAngles& angles) const;

  // What paths ask of the description.
  [[nodiscard]] int layers() const { return spec().layer_count(); }
  [[nodiscard]] int hidden() const { return spec().hidden; }
  /// Of the widest network that every token takes.
  [[nodiscard]] int intermediate() const { return spec().dense_width(); }
  /// Tokens of the whole model, and those whose embeddings and logits this part has.
  [[nodiscard]] int vocab() const { return model_.vocab(); }
  [[nodiscard]] Range own_tokens() const { return model_.own_tokens(); }
  /// The layer's attention; null when its mixer is recurrent.
  [[nodiscard]] const AttentionSpec* attention(int layer) const {
    return spec().layer(layer).attention();
  }
  // Heads where all layers have the same (ModelSpec::has_equal_heads).
  [[nodiscard]] int head_dim() const { return spec().attention().head_dim; }
  [[nodiscard]] int kv_heads() const { return spec().attention().kv_heads; }
  [[nodiscard]] int group() const { return spec().attention().group(); }
  /// The layer's recurrent mixer; null when it is attention.
  [[nodiscard]] const RecurrentSpec* recurrent(int layer) const {
    return spec().layer(layer).recurrent();
  }
  /// Where the entries that an attention layer attends to lie in the cache.
  [[nodiscard]] int cache_layer(int layer) const { return spec().cache_place(layer); }
  /// Whether other layers attend to this one's entries, too.
  [[nodiscard]] bool is_source(int layer) const { return sources_.contains(layer); }
  [[nodiscard]] float norm_eps() const { return spec().final_norm.eps; }
  /// Channels of a head that RoPE rotates, in the layer where it rotates most.
  [[nodiscard]] int rotary_channels() const { return model_.ropes().channels(); }
  /// The norm of what a layer leaves: the next layer's first one, or the model's last one.
  [[nodiscard]] const FloatBuffer& norm_behind(int layer) const {
    return layer + 1 == layers() ? weights_.norm : this->layer(layer + 1).attention_norm;
  }

  /// Widths of rows, of a layer and of the widest. What attention takes and gives has heads as wide
  /// as the cache's.
  [[nodiscard]] int query_width(int layer) const {
    return attention(layer)->heads * spec().cached_head_dim();
  }
  [[nodiscard]] int query_width() const;
  /// What the layer's product gives of queries, keys and values.
  [[nodiscard]] int qkv_width(int layer) const { return this->layer(layer).qkv.view().rows; }
  [[nodiscard]] int qkv_width() const;
  /// What its mixer gives, before the output projection.
  [[nodiscard]] int mixer_width(int layer) const {
    const RecurrentSpec* mixer = recurrent(layer);
    return mixer != nullptr ? mixer->heads.value_width() : query_width(layer);
  }
  [[nodiscard]] int mixer_width() const;
  /// Of attention scores.
  [[nodiscard]] float scale() const;

  /// The final norm of a row of the residual stream [hidden], in place, on the host.
  void final_norm(std::span<float> state) const;

 private:
  const Model& model_;
  std::set<int> sources_;
  parallel::cuda::DeviceRanks* ranks_;
  DeviceWeights weights_;
  FloatBuffer frequencies_;
  FloatBuffer rope_factors_;
  bool plain_;
  bool plain_layers_;
};

}  // namespace winnow::model::cuda
