// The whole stack of layers, forward and backward, on one packed batch.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "model/rope_tables.h"
#include "train/batch.h"
#include "train/layer.h"
#include "train/layer_access.h"
#include "train/layer_embeddings.h"
#include "train/options.h"
#include "train/shared_entries.h"

namespace winnow::train {

/// What a forward pass keeps for the backward pass.
enum class Keep : std::uint8_t {
  nothing,  // no backward pass will follow (a teacher)
  inputs,   // every layer's input: backward recomputes the layer (activation recomputation)
  all,
};

/// What training on the CPU keeps: all activations only with Activations::keep.
inline Keep host_keep(const TrainingOptions& options) {
  return options.activations == Activations::keep ? Keep::all : Keep::inputs;
}

/// Embedding and layers; the head is in head.h. One Decoder serves passes of up to `tokens` tokens.
class Decoder {
 public:
  Decoder(const model::ModelSpec& spec, std::size_t tokens, Keep keep);
  /// The bytes that a Decoder takes.
  static std::size_t bytes(const model::ModelSpec& spec, std::size_t tokens, Keep keep);

  /// Fills hidden(). `batch` has exactly `tokens` tokens, all inside the vocabulary.
  void forward(ops::Context& context, const Weights& weights, const Batch& batch,
               const DecisionPass& decisions);

  /// The residual stream after the last layer [T, hidden], before the final norm.
  [[nodiscard]] ops::Matrix<float> hidden() { return inputs_.back(); }
  /// The residual stream before a layer, or after the last one. Keep::nothing: only after the last.
  [[nodiscard]] ops::Matrix<const float> input(int layer) const;

  /// Backward of the latest forward(), with the same weights, batch and decisions: converts
  /// `gradient` [T, hidden] of hidden() to that of the embedded tokens and adds to `gradients`.
  /// `losses`: one per compressing layer; empty while nothing is decided.
  void backward(ops::Context& context, const Weights& weights, const Batch& batch,
                const DecisionPass& decisions, std::span<const DecisionLoss> losses,
                const Gradients& gradients, ops::Matrix<float> gradient);

  /// Statistics of the decisions of the latest forward().
  struct Decided {
    std::vector<std::int64_t> marked;  // [compressing layers * decisions per layer]
    double excess = 0.0;               // sum over all of max(|logit| - excess_limit, 0)^2
    double soft_marked = 0.0;          // sum of the soft decisions
  };
  [[nodiscard]] const Decided& decided() const { return decided_; }

  /// The limit that Decided::excess uses.
  float excess_limit = 6.0F;
  /// Is notified of the layers that a pass enters and leaves; null: all weights are in memory.
  LayerAccess* access = nullptr;

 private:
  void open(int layer) const;
  LayerPass pass_of(const Batch& batch, const DecisionPass& decisions, int layer) const;
  LayerActivations& activations(int layer);
  void count_decisions(const LayerActivations& activations);

  model::ModelSpec spec_;
  Keep keep_;
  model::RopeTables ropes_;
  SharedEntries shared_;
  LayerInputs layer_inputs_;
  std::vector<std::int32_t> positions_;                  // of the batch's tokens
  std::map<int, std::vector<std::int32_t>> chunk_keys_;  // by width: where their chunks begin
  std::vector<ops::RopeAngles> angles_;                  // by table
  Buffer<float> memory_;
  std::vector<ops::Matrix<float>> inputs_;     // of every layer, and the last one's output
  std::vector<LayerActivations> activations_;  // one, or one per layer
  Decided decided_;
};

}  // namespace winnow::train
