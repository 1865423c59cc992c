// The general path: runs everything between attentions that a model description may contain, op by
// op. cuBLASLt computes the products, with row-major weights in bf16 or fp8. For plain models it is
// the fastest path for prompts and large batches.
#pragma once

#include <cstdint>
#include <memory>

#include "model/cuda/device_lora.h"
#include "model/cuda/fast_paths.h"
#include "model/cuda/large_products.h"
#include "model/cuda/routed_experts.h"

namespace winnow::model::cuda {

class LargeBatchLayers final : public LinearPath {
 public:
  static constexpr bool kPads = true;
  /// All models; steps only if they may be padded.
  static bool takes(const DeviceModel& /*model*/, const LinearCall& call) {
    return !call.is_step || call.may_pad;
  }
  /// The sizes of steps repeat, so a new size tries cuBLASLt's algorithms on the rows of its first
  /// step, which destroys their values.
  static std::unique_ptr<LinearPath> make(const DeviceModel& model, const MatrixWeights& matrices,
                                          const LinearCall& call);

  /// Both must outlive this. `search`: a new number of rows makes linear layers try algorithms.
  LargeBatchLayers(const DeviceModel& model, const MatrixWeights& matrices, bool search)
      : model_(model), matrices_(matrices), products_(matrices, search), experts_(model) {}

  [[nodiscard]] std::string_view name() const override { return "LargeBatchLayers"; }
  [[nodiscard]] bool pads() const override { return kPads; }
  [[nodiscard]] bool rounds_qkv() const override { return true; }
  void reserve(int rows) override;
  void take_tokens(const std::int32_t* tokens) override { tokens_ = tokens; }
  void take_states(const float* states, bool own) override {
    states_ = states;
    states_are_own_ = own;
  }
  void adapt(const ops::cuda::LowRankRows& rows) override { adapted_ = rows; }
  [[nodiscard]] ops::cuda::ResidualStream residual() const override;
  kvcache::cuda::QkvRows project(int layer, const QkvMemory& to, int rows, bool overlap,
                                 cudaStream_t stream) override;
  void recall(int layer, const ops::cuda::RecurrentRows& sequences, bf16* out, int rows,
              cudaStream_t stream) override;
  void gate(int layer, bf16* attended, int rows, cudaStream_t stream) override;
  void finish_layer(int layer, const bf16* attended, int rows, cudaStream_t stream) override;
  bool finish_step(const bf16* attended, bool with_logits, const OutputHead& head, int rows,
                   cudaStream_t stream) override;
  const bf16* keep_rows(const std::int32_t* indices, int rows, bf16* attended,
                        cudaStream_t stream) override;
  ops::cuda::SkinnyInput finish(int rows, cudaStream_t stream) override;
  [[nodiscard]] const float* hidden() const override { return hidden_.data(); }

 private:
  // large_batch_embeddings.cc
  void reserve_embeddings(int rows);
  /// Computes layer_inputs_ from the embedded tokens.
  void embed_for_layers(int rows, cudaStream_t stream);
  void embed_rows_for_layers(int first, int rows, cudaStream_t stream);
  /// Adds the layer's own embedding, gated and projected, to the residual stream.
  void add_layer_embedding(int layer, int rows, cudaStream_t stream);

  // large_batch_draft_head.cc
  void reserve_draft_head(int rows);
  /// Computes the residual stream, and joined_ if attention takes it, from the embedded tokens and
  /// the states.
  void begin_head(int rows, cudaStream_t stream);
  void begin_eagle(int rows, cudaStream_t stream);
  void begin_mtp(int rows, cudaStream_t stream);
  void fuse_states(int rows, cudaStream_t stream);
  /// Whether attention takes joined_, not normed_.
  [[nodiscard]] bool joins_inputs() const;

  // large_batch_mixers.cc
  void reserve_mixers(int rows);
  /// Computes a recurrent mixer's inputs from normed_.
  void project_recurrent(int layer, int rows, cudaStream_t stream);
  /// recall() for a mixer with matrix states.
  void recall_matrices(int layer, const ops::cuda::RecurrentRows& own, bf16* out, int rows,
                       cudaStream_t stream);
  /// Computes output_gates_ from normed_.
  void project_output_gates(int layer, int rows, cudaStream_t stream);

  /// The attention output without the padding of narrow heads; stored in gate_up_ if there is any.
  const bf16* narrowed(int layer, const bf16* attended, int rows, cudaStream_t stream);

  // large_batch_lora.cc: adds the adapters to the products of a layer.
  template <class Number>
  void adapt_qkv(int layer, Number* qkv, int rows, cudaStream_t stream) const;
  void adapt_gate_up(int layer, bf16* product, int rows, cudaStream_t stream) const;
  using Place = parallel::cuda::DeviceRanks::Place;
  void adapt_branch(int layer, Place place, float* out, const bf16* x, int inputs, int rows,
                    cudaStream_t stream) const;
  static ops::cuda::LowRankPart part(int layer, LoraPlace place, int column, int outputs);

  /// Computes normed_, the input of the layer's mixer or feed-forward, from the residual stream.
  void take_mixer_input(int layer, int rows, cudaStream_t stream);
  void take_mlp_input(int layer, int rows, cudaStream_t stream);
  void take_input(const LayerSpec& spec, const FloatBuffer& weight, const FloatBuffer& bias,
                  bool as_codes, int rows, cudaStream_t stream);
  /// Whether only fp8 products read these inputs, so that codes are enough.
  [[nodiscard]] bool mixer_reads_codes(int layer) const;
  [[nodiscard]] bool mlp_reads_codes(int layer) const;
  [[nodiscard]] ActivationRows normed() const;
  void norm(const NormSpec& spec, const FloatBuffer& weight, const FloatBuffer& bias, int rows,
            cudaStream_t stream);
  template <class Number>
  void norm_whole(int layer, Number* qkv, int rows, cudaStream_t stream) const;
  /// Where ranks leave parts of sums, for `rows` rows.
  void reserve_parts(parallel::cuda::DeviceRanks& ranks, int rows);
  /// The output buffer of a part of the layer: the residual stream itself, branch_, or memory that
  /// other ranks read.
  [[nodiscard]] float* branch(int layer, Place place) const;
  /// Adds this output, or the sum of all ranks', to the stream: multiplier * [norm](branch).
  void take_branch(int layer, Place place, bool in_16_bits, int rows, cudaStream_t stream);
  [[nodiscard]] bool adds_plainly(int layer) const;
  /// The stream += multiplier * [norm](branch_).
  void take_whole_branch(int layer, Place place, int rows, cudaStream_t stream);
  /// The residual stream += multiplier * [norm](x weight^T + bias).
  void add_branch(int layer, Place place, const ActivationRows& x,
                  const ops::cuda::DeviceWeight& weight, const FloatBuffer& bias, int rows,
                  cudaStream_t stream);
  /// The residual stream += multiplier * [norm](feed-forward of normed_).
  void add_feed_forward(int layer, int rows, cudaStream_t stream);
  /// The same for a layer with experts.
  void add_experts(int layer, int rows, cudaStream_t stream);
  void add_experts_beside(int layer, int rows, cudaStream_t stream);
  /// sum [rows, hidden] += the routed experts' outputs, for up to experts_.rows_at_once() rows from
  /// `first` on.
  void add_routed(int layer, float* sum, int first, int rows, cudaStream_t stream);
  void reserve_experts(int rows);
  /// out [rows, hidden] = the shared expert's output for normed_.
  void multiply_shared(int layer, float* out, int rows, cudaStream_t stream);
  /// Where to compute what sum_shared() then makes shared_: the sum over all ranks.
  [[nodiscard]] float* shared_part(Place place) const;
  void sum_shared(Place place, int rows, cudaStream_t stream);
  void add_shared(int layer, float* sum, int rows, cudaStream_t stream);
  /// activated_ = act(gate) * up for normed_, or act(up).
  ActivationRows activate(int layer, int rows, cudaStream_t stream);
  [[nodiscard]] bool adds_as_it_is(int layer) const;
  /// Elements of `rows` rows of the residual stream.
  [[nodiscard]] std::size_t size_of(int rows) const;
  /// Computes logits [rows, vocab] from finish()'s result.
  void logits(float* logits, int rows, cudaStream_t stream);

  const DeviceModel& model_;
  const MatrixWeights& matrices_;
  LargeProducts products_;
  ops::cuda::LowRankRows adapted_;
  winnow::cuda::DeviceBuffer<float> hidden_;       // [rows, hidden]
  winnow::cuda::DeviceBuffer<float> square_sums_;  // [rows] of the embeddings; unused
  winnow::cuda::DeviceBuffer<bf16> normed_;        // [rows, hidden], or their codes
  winnow::cuda::DeviceBuffer<bf16> gate_up_;       // [rows, 2 * intermediate]; also scratch
  winnow::cuda::DeviceBuffer<bf16> activated_;     // [rows, intermediate], or their codes
  winnow::cuda::DeviceBuffer<float> scales_;       // [2, rows] of the codes in these two
  bool normed_are_codes_ = false;
  winnow::cuda::DeviceBuffer<float> branch_;        // [rows, hidden] if not added directly
  winnow::cuda::DeviceBuffer<float> squares_;       // of all ranks, for norms over all heads
  winnow::cuda::DeviceBuffer<float> output_gates_;  // [rows, mixer_width] if layers have any
  // For recurrent mixers:
  winnow::cuda::DeviceBuffer<float> recurrent_input_;  // [rows, channels], then the mixer's output
  winnow::cuda::DeviceBuffer<float> recurrent_mixed_;  // [rows, channels]
  winnow::cuda::DeviceBuffer<float> recurrent_gates_;  // [rows, padded_gates()]
  // For models with per-layer embeddings; the floats for up to kEmbeddedRows rows at a time:
  static constexpr int kEmbeddedRows = 512;
  const std::int32_t* tokens_ = nullptr;           // [rows], of this pass
  const std::int32_t* kept_rows_ = nullptr;        // [rows], from keep_rows()
  winnow::cuda::DeviceBuffer<bf16> layer_inputs_;  // [rows, layers * width]
  winnow::cuda::DeviceBuffer<float> projected_;    // [rows, layers * width]
  winnow::cuda::DeviceBuffer<float> embedded_;     // [rows, layers * width]
  // For heads that draft:
  const float* states_ = nullptr;  // of this pass, see take_states()
  bool states_are_own_ = false;
  winnow::cuda::DeviceBuffer<bf16> inputs_;  // [rows, DraftHeadSpec::fused()]: of the fusion
  winnow::cuda::DeviceBuffer<bf16> joined_;  // [rows, 2 * hidden]: what attention takes
  // For experts:
  RoutedExperts experts_;
  winnow::cuda::DeviceBuffer<float> shared_;  // [rows, hidden]
};

}  // namespace winnow::model::cuda
