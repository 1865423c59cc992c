// The decoder-only transformer: tokens in, logits out, keys and values into the cache.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kvcache/attend.h"
#include "kvcache/drawn_decisions.h"
#include "kvcache/sequence_cache.h"
#include "model/decision.h"
#include "model/rope_tables.h"
#include "model/shard.h"
#include "model/spec.h"
#include "model/stream_states.h"
#include "model/weights.h"
#include "ops/context.h"
#include "ops/matrix.h"

namespace winnow::model {

class Lora;

/// What the attention of a layer that stores entries takes, for a sequence's next T tokens. Heads
/// are as wide as in the cache.
struct AttentionInputs {
  int layer = 0;
  int place = 0;                    // the layer's index in the cache
  ops::Matrix<const float> hidden;  // [T, hidden]: the layer's input, normed if it has a norm there
  ops::Matrix<const float> queries;  // [T, heads * head_dim], after RoPE
  ops::Matrix<const float> keys;     // [T, kv_heads * head_dim], after RoPE
  ops::Matrix<const float> values;   // [T, kv_heads * head_dim]
};
using AttentionListener = std::function<void(const AttentionInputs&)>;

/// The next tokens of one sequence in a step.
struct SequenceStep {
  kvcache::SequenceCache* cache = nullptr;
  std::span<const std::int32_t> tokens;
  /// Logits of the last `logit_rows` tokens are computed.
  std::size_t logit_rows = 1;
  /// Optional [T, attention layers * kv_heads]: receives the number of entries that queries saw.
  ops::Matrix<std::int32_t> visible;
  /// Optional, for one token: row l receives its weights in attention layer l
  /// (kvcache::LayerChunk::weights).
  ops::Matrix<float> weights = {};
  /// Optional [hidden], with logits: receives the last token's state after the final norm; a head's
  /// is what it takes for the next row (HeadInput::own).
  std::span<float> state = {};
  /// Optional: receives states of all tokens between and behind layers.
  StreamStates stream = {};
  /// Of a head that drafts.
  HeadInput input = {};
  /// Optional: LoRA products, added to the model's projections.
  const Lora* adapter = nullptr;
  /// Optional: receives what attention takes, layer by layer.
  const AttentionListener* listener = nullptr;
};

/// The properties of a model that its cache needs.
kvcache::CacheShape cache_shape(const ModelSpec& spec);
/// The same of the cache that ranks hold together (CacheShape::holders).
kvcache::CacheShape cache_shape(const ModelSpec& spec, int ranks);

/// A rank's part of a model.
struct ModelPart {
  Shard shard;
  ModelSpec whole;
};

/// A model on the CPU: walks over the layers of its ModelSpec, op by op.
class Model {
 public:
  /// With `part`, spec and weights describe a rank's part (shard_spec(), load_weights()), and all
  /// ranks run the same steps; the contexts of the steps name the ranks.
  Model(ModelSpec spec, Weights weights, std::optional<ModelPart> part = {});

  [[nodiscard]] const ModelSpec& spec() const { return spec_; }
  [[nodiscard]] const Weights& weights() const { return weights_; }
  [[nodiscard]] const RopeTables& ropes() const { return ropes_; }
  /// For the heads of the part.
  [[nodiscard]] kvcache::CacheShape cache_shape() const {
    kvcache::CacheShape shape = model::cache_shape(spec_);
    shape.calibration = calibration_;
    return shape;
  }
  /// The vocabulary of the whole model, also for a part.
  [[nodiscard]] int vocab() const { return part_ ? part_->whole.vocab : spec_.vocab; }
  /// The tokens whose embeddings and logits this part has.
  [[nodiscard]] Range own_tokens() const {
    return share_of(vocab(), part_ ? part_->shard : Shard{});
  }

  /// For rules that need statistics of the model's queries.
  void calibrate(std::shared_ptr<const kvcache::Calibration> calibration) {
    calibration_ = std::move(calibration);
  }

  /// For benchmarks of untrained shapes: these take the place of what the model decides.
  void draw_decisions(const kvcache::DrawnDecisions& drawn);
  [[nodiscard]] const std::optional<kvcache::DrawnDecisions>& drawn_decisions() const {
    return drawn_;
  }

  /// Runs one step: appends every sequence's tokens to its cache and writes the logits that were
  /// asked for, sequence after sequence, to `logits` [sum of logit_rows, vocab()]. Of several
  /// ranks only the first one's `logits` are written; those of others need no memory.
  void forward(ops::Context& context, std::span<const SequenceStep> steps,
               ops::Matrix<float> logits) const;

 private:
  struct Activations;

  void forward_by_token(ops::Context& context, std::span<const SequenceStep> steps,
                        ops::Matrix<float> logits) const;
  void embed(const ops::Context& context, std::span<const SequenceStep> steps,
             ops::Matrix<float> hidden) const;
  void begin_stream(ops::Context& context, std::span<const SequenceStep> steps,
                    Activations& a) const;
  void end_stream(std::span<const SequenceStep> steps, Activations& a) const;
  void begin_head(ops::Context& context, std::span<const SequenceStep> steps, Activations& a) const;
  void check_inputs(std::span<const SequenceStep> steps) const;
  void begin_eagle(ops::Context& context, std::span<const SequenceStep> steps,
                   Activations& a) const;
  void begin_mtp(ops::Context& context, std::span<const SequenceStep> steps, Activations& a) const;
  void take_inputs(ops::Context& context, std::span<const SequenceStep> steps,
                   ops::Matrix<float> hidden) const;
  void embed_for_layers(ops::Context& context, std::span<const SequenceStep> steps,
                        Activations& a) const;
  void add_layer_embedding(ops::Context& context, int layer, const Activations& a) const;
  [[nodiscard]] ops::Matrix<const float> mixed(ops::Context& context, int layer,
                                               const Activations& a) const;
  void project_heads(ops::Context& context, int layer, std::span<const SequenceStep> steps,
                     Activations& a) const;
  void project(ops::Context& context, int layer, std::span<const SequenceStep> steps,
               Activations& a) const;
  void norm_queries_and_keys(const ops::Context& context, int layer, const Activations& a) const;
  void rotate(const ops::Context& context, int layer, const Activations& a) const;
  void mix(ops::Context& context, int layer, std::span<const SequenceStep> steps,
           Activations& a) const;
  [[nodiscard]] ops::Matrix<const float> mixer_input(int layer, const Activations& a) const;
  void take_parallel_input(int layer, const Activations& a) const;
  void attend(ops::Context& context, int layer, std::span<const SequenceStep> steps,
              Activations& a) const;
  struct Heads;
  [[nodiscard]] Heads heads_in_cache(ops::Workspace& workspace, const AttentionSpec& attention,
                                     const Activations& a) const;
  void tell_listeners(int layer, std::span<const SequenceStep> steps,
                      std::span<const kvcache::LayerChunk> chunks, const Activations& a) const;
  [[nodiscard]] std::vector<kvcache::LayerChunk> chunks_of(int layer,
                                                           std::span<const SequenceStep> steps,
                                                           const Activations& a,
                                                           const Heads& heads) const;
  void feed_forward(ops::Context& context, int layer, std::span<const SequenceStep> steps,
                    const Activations& a) const;
  void add_mlps(ops::Context& context, int layer, std::span<const SequenceStep> steps,
                ops::Matrix<const float> input, ops::Matrix<float> out) const;
  [[nodiscard]] std::function<std::size_t(const SequenceStep&)> rows_behind(int layer) const;
  struct BranchEnd {  // what becomes of a branch
    const std::vector<float>& post_norm;
    float multiplier = 1.0F;
  };
  template <class Add>
  void add_branch(ops::Context& context, int layer, const Activations& a, const BranchEnd& end,
                  const Add& add, bool adds_part = true) const;
  void logits(ops::Context& context, const Activations& a, ops::Matrix<float> logits) const;
  void head_logits(ops::Context& context, const Activations& a, ops::Matrix<float> logits) const;
  void part_of_logits(ops::Context& context, const Activations& a, ops::Matrix<float> logits) const;
  void decide(ops::Context& context, int layer, std::span<const SequenceStep> steps,
              const Activations& a) const;
  void draw(int layer, std::span<const SequenceStep> steps, const Decisions& decisions) const;
  void decide_alone(ops::Context& context, int layer, std::span<const SequenceStep> steps,
                    const Activations& a) const;
  static void share_in_layer(const ops::Context& context, const Decisions& decisions,
                             const ops::Matrix<float>& numbers);
  void share_in_groups(const ops::Context& context, int layer, const Decisions& decisions,
                       const ops::Matrix<float>& numbers) const;
  static void pool(const DmcConfig& dmc, int layer, std::span<const SequenceStep> steps,
                   const Decisions& decisions);

  ModelSpec spec_;
  Weights weights_;
  std::optional<ModelPart> part_;
  RopeTables ropes_;
  bool shares_entries_;
  std::vector<bool> sources_;  // by layer: whether others share its entries
  int cached_dim_;             // channels of a head in the cache
  std::optional<kvcache::DrawnDecisions> drawn_;
  std::shared_ptr<const kvcache::Calibration> calibration_;
};

}  // namespace winnow::model
