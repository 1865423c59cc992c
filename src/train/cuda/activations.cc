#include "train/cuda/activations.h"

#include "model/channels.h"
#include "ops/cuda/segment_average.h"
#include "ops/cuda/training/training_attention.h"
#include "train/cuda/weights.h"
#include "train/decisions.h"

namespace winnow::train::cuda {
namespace {

std::size_t padded(std::size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

std::size_t size(int count) {
  return static_cast<std::size_t>(count);
}

// Allocates memory piece by piece, or counts it when there is none.
class Arena {
 public:
  explicit Arena(std::byte* memory = nullptr) : memory_(memory) {}

  template <class T>
  void take(T*& pointer, std::size_t count) {
    if (count > 0) {
      pointer = memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + used_);
      used_ += padded(count * sizeof(T));
    }
  }
  [[nodiscard]] std::size_t used() const { return used_; }

 private:
  std::byte* memory_;
  std::size_t used_ = 0;
};

}  // namespace

template <class Take>
void DeviceActivations::lay_out(const ModelConfig& config, const Take& take) {
  const int queries_width = config.heads * config.head_dim;
  const int keys_width = config.kv_heads * config.head_dim;
  take(normed, config.hidden);
  take(projected, config.qk_norm ? queries_width + 2 * keys_width : 0);
  take(queries, queries_width);
  take(keys, keys_width);
  take(values, keys_width);
  take(attended, queries_width);
  take(normalizers, config.heads);
  take(middle, config.hidden);
  take(mlp_normed, config.hidden);
  take(gate_up, 2 * config.intermediate);
  if (config.dms || config.dmc) {
    const auto decisions = static_cast<int>(decision_count(config));
    take(decision_normed, model::borrows_channels(config) ? 0 : config.hidden);
    take(probe, padded_decisions(config));
    take(read, model::borrows_channels(config) ? config.kv_heads : 0);
    take(logits, decisions);
    take(noisy, decisions);
    take(key_bias, config.kv_heads);
  }
  if (config.dmc) {
    take(omega_probe, padded_decisions(config));
    take(omega_read, config.kv_heads);
    take(alphas, config.kv_heads);
    take(merged_keys, keys_width);
    take(merged_values, keys_width);
  }
}

std::size_t DeviceActivations::bytes(const ModelConfig& config, std::size_t tokens) {
  Arena arena;
  DeviceActivations().lay_out(
      config, [&](auto*& pointer, int columns) { arena.take(pointer, tokens * size(columns)); });
  return arena.used();
}

DeviceActivations::DeviceActivations(const ModelConfig& config, std::size_t tokens)
    : memory_(bytes(config, tokens)) {
  Arena arena(memory_.data());
  lay_out(config,
          [&](auto*& pointer, int columns) { arena.take(pointer, tokens * size(columns)); });
}

template <class Take>
void LayerScratch::lay_out(const ModelConfig& config, std::size_t tokens, const Take& take) {
  const std::size_t queries_width = tokens * size(config.heads * config.head_dim);
  const std::size_t keys_width = tokens * size(config.kv_heads * config.head_dim);
  take(projected, queries_width + 2 * keys_width);
  take(product, tokens * size(config.intermediate));
  take(dnormed, tokens * size(config.hidden));
  take(dattended, queries_width);
  take(dqueries, queries_width);
  take(dkeys, keys_width);
  take(dvalues, keys_width);
  take(far_bias, tokens * size(config.kv_heads));
  take(dkey_bias, tokens * size(config.kv_heads));
  if (config.dms || config.dmc) {
    take(dread, tokens * size(config.kv_heads));
    take(dprobe, tokens * size(padded_decisions(config)));
  }
  if (config.dmc) {
    take(dsingle_keys, keys_width);
    take(dsingle_values, keys_width);
    take(domega_read, tokens * size(config.kv_heads));
    take(dalphas, tokens * size(config.kv_heads));
    take(domega_probe, tokens * size(padded_decisions(config)));
    take(merging, ops::cuda::segment_average_scratch(static_cast<int>(tokens), config.kv_heads));
  }
  take(attention, ops::cuda::training_attention_scratch_bytes(static_cast<int>(tokens),
                                                              config.heads, config.head_dim));
}

std::size_t LayerScratch::bytes(const ModelConfig& config, std::size_t tokens) {
  Arena arena;
  LayerScratch().lay_out(config, tokens,
                         [&](auto*& pointer, std::size_t count) { arena.take(pointer, count); });
  return arena.used();
}

LayerScratch::LayerScratch(const ModelConfig& config, std::size_t tokens)
    : memory_(bytes(config, tokens)) {
  Arena arena(memory_.data());
  lay_out(config, tokens, [&](auto*& pointer, std::size_t count) { arena.take(pointer, count); });
}

}  // namespace winnow::train::cuda
