// A model on a device: its weights, and the parameters of its layers' kernels.
#pragma once

#include <set>
#include <span>
#include <vector>

#include "kvcache/cuda/append/projection.h"
#include "model/cuda/device_weights.h"
#include "model/model.h"
#include "parallel/cuda/device_ranks.h"

namespace winnow::model::cuda {

/// Rotary angles of a step's tokens: a table [tokens, rotary_channels() / 2] for each RoPE of the
/// model; tables are `stride` elements apart.
struct StepAngles {
  const float2* tables = nullptr;
  std::size_t stride = 0;
};

class DeviceModel {
 public:
  /// Copies the weights of `model`, which must outlive this, to the current device. Throws Error if
  /// there are no kernels for it. `ranks`, which must also outlive this: for one rank's part.
  DeviceModel(const Model& model, ops::cuda::DeviceWeightFormat format,
              parallel::cuda::DeviceRanks* ranks = nullptr);

  /// The ranks of a sharded model; null if this is the whole model.
  [[nodiscard]] parallel::cuda::DeviceRanks* ranks() const { return ranks_; }
  /// Whether kernels can add up rows over all ranks: there is one, or they share memory.
  [[nodiscard]] bool can_sum_rows() const { return ranks_ == nullptr || ranks_->share_memory(); }

  [[nodiscard]] const ModelSpec& spec() const { return model_.spec(); }
  /// Whether fast paths support everything in the layers besides attention (beyond_plain();
  /// uploaded norm weights already include the 1 of rms_plus_one).
  [[nodiscard]] bool is_plain() const { return plain_; }
  /// The same, but feed-forwards may have experts, and attention sinks.
  [[nodiscard]] bool has_plain_layers() const { return plain_layers_; }
  [[nodiscard]] kvcache::CacheShape cache_shape() const { return model_.cache_shape(); }
  [[nodiscard]] const DeviceWeights& weights() const { return weights_; }
  [[nodiscard]] const DeviceLayerWeights& layer(int layer) const {
    return weights_.layers[static_cast<std::size_t>(layer)];
  }
  /// The frequencies of all RoPEs [rope_tables(), rotary_channels() / 2], and attention factors.
  [[nodiscard]] const FloatBuffer& frequencies() const { return frequencies_; }
  [[nodiscard]] const FloatBuffer& rope_factors() const { return rope_factors_; }
  [[nodiscard]] int rope_tables() const { return static_cast<int>(model_.ropes().ropes().size()); }
  /// Writes the angles of the tokens at `positions` [tokens] to `tables`.
  void compute_angles(float2* tables, std::size_t stride, const std::int32_t* positions, int tokens,
                      cudaStream_t stream) const;

  /// The parameters of what follows the q, k and v products of `layer`, for its input [tokens,
  /// hidden] and the rotary angles of the tokens.
  [[nodiscard]] kvcache::cuda::Projection projection(int layer, const float* hidden,
                                                     const StepAngles& angles) const;

  // Properties of the model that paths use.
  [[nodiscard]] int layers() const { return spec().layer_count(); }
  [[nodiscard]] int hidden() const { return spec().hidden; }
  /// The width of the widest dense network or shared expert.
  [[nodiscard]] int intermediate() const { return spec().dense_width(); }
  /// Tokens of the whole model, and those whose embeddings and logits this rank has.
  [[nodiscard]] int vocab() const { return model_.vocab(); }
  [[nodiscard]] Range own_tokens() const { return model_.own_tokens(); }
  /// Rank r has the tokens [r, r + 1) of these.
  [[nodiscard]] std::vector<int> token_cuts() const;
  /// The layer's attention; null if its mixer is recurrent.
  [[nodiscard]] const AttentionSpec* attention(int layer) const {
    return spec().layer(layer).attention();
  }
  // Heads, if all layers have equal ones (ModelSpec::has_equal_heads).
  [[nodiscard]] int head_dim() const { return spec().attention().head_dim; }
  [[nodiscard]] int kv_heads() const { return spec().attention().kv_heads; }
  [[nodiscard]] int group() const { return spec().attention().group(); }
  /// The layer's recurrent mixer; null if it is attention.
  [[nodiscard]] const RecurrentSpec* recurrent(int layer) const {
    return spec().layer(layer).recurrent();
  }
  /// The index in the cache of the entries that an attention layer reads.
  [[nodiscard]] int cache_layer(int layer) const { return spec().cache_place(layer); }
  /// Whether later layers read this layer's entries, too.
  [[nodiscard]] bool is_source(int layer) const { return sources_.contains(layer); }
  [[nodiscard]] float norm_eps() const { return spec().final_norm.eps; }
  /// The most channels of a head that RoPE rotates in any layer.
  [[nodiscard]] int rotary_channels() const { return model_.ropes().channels(); }
  /// The norm after a layer: the next layer's first norm, or the model's final norm.
  [[nodiscard]] const FloatBuffer& norm_behind(int layer) const {
    return layer + 1 == layers() ? weights_.norm : this->layer(layer + 1).attention_norm;
  }

  /// Widths of rows, of a layer and of the widest layer. Inputs and outputs of attention have heads
  /// as wide as the cache's.
  [[nodiscard]] int query_width(int layer) const {
    return attention(layer)->heads * spec().cached_head_dim();
  }
  [[nodiscard]] int query_width() const;
  /// Outputs of the product for queries, keys and values.
  [[nodiscard]] int qkv_width(int layer) const { return this->layer(layer).qkv.view().rows; }
  [[nodiscard]] int qkv_width() const;
  /// The width of the mixer's output, before the output projection.
  [[nodiscard]] int mixer_width(int layer) const {
    const RecurrentSpec* mixer = recurrent(layer);
    return mixer != nullptr ? mixer->heads.value_width() : query_width(layer);
  }
  [[nodiscard]] int mixer_width() const;
  /// The factor of attention scores.
  [[nodiscard]] float scale() const;

  /// Applies the final norm to a row of the residual stream [hidden], in place, on the host.
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
