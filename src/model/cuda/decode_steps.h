// Decode steps on a device: captured graphs append one token to each of several sequences.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/cuda/graph.h"
#include "kvcache/cuda/token_attention.h"
#include "model/cuda/device_lora.h"
#include "model/cuda/device_model.h"
#include "model/cuda/fast_paths.h"
#include "model/cuda/layer_walk.h"
#include "model/cuda/output_head.h"
#include "model/cuda/step_tokens.h"
#include "model/cuda/stream_rows.h"
#include "model/stream_states.h"
#include "ops/matrix.h"

namespace winnow::model::cuda {

/// One token of each of several sequences. Spans have an element for each sequence, or are empty.
struct DecodeBatch {
  std::span<const std::int32_t> slots;
  std::span<const std::int32_t> tokens;
  std::span<const DeviceLora* const> adapters;  // empty: no sequence has one
  std::span<const RowChoice> rows;              // empty: the most likely tokens are chosen
  /// Quest: each [1, layers * kv_heads], unless it is empty, receives how many entries were read.
  std::span<const ops::Matrix<std::int32_t>> visible;
  std::span<const StreamStates> streams;  // receive the states of tokens between layers
};

/// Steps of up to most_sequences() sequences. There is a graph for each number of sequences that
/// occurs, and for each Shape. Paths that pad (fast_paths.h) have graphs for a few sizes only; a
/// padding row belongs to no sequence, and neither reads nor writes the cache. Graphs of steps with
/// restricted rows end with the logits: while they run, the host computes which tokens are allowed;
/// a second graph then chooses the tokens.
class DecodeSteps {
 public:
  /// All arguments must outlive this. `most_padded`: the most sequences that steps may be padded
  /// to; 0: no padding, because the kernels for limited attention do not support it. `head` must
  /// have room for most_step_sequences(most_padded) rows.
  DecodeSteps(const DeviceModel& model, const MatrixWeights& matrices,
              kvcache::cuda::DeviceCache& cache, OutputHead& head, int most_padded);

  [[nodiscard]] int most_sequences() const { return most_; }
  /// Whether sequences may have adapters: only the paths that pad support them.
  [[nodiscard]] bool takes_adapters() const { return padded_attention_.has_value(); }
  /// The name of the path that the last step took; empty before the first step.
  [[nodiscard]] std::string_view last_path() const { return last_path_; }

  /// Appends tokens[i] to the sequence in slots[i], and chooses next[i] by rows[i]. `logits`
  /// [batch, vocab] and `next` [batch] may be empty. Waits for the results.
  void run(const DecodeBatch& batch, ops::Matrix<float> logits, std::span<std::int32_t> next,
           const winnow::cuda::Stream& stream);

 private:
  // What a captured step depends on.
  struct Shape {
    int size;  // sequences, including padding
    bool padded;
    bool adapts;
    bool with_logits;
    bool restricted;  // a second graph chooses the tokens
    bool with_reads;
    bool with_states;
    std::optional<RowKind> kernel;  // set if the step is one kernel
    bool planned;
    std::string_view path;                           // its name
    auto operator<=>(const Shape&) const = default;  // NOLINT(modernize-use-nullptr): misread
  };

  [[nodiscard]] Shape shape_of(const DecodeBatch& batch, bool with_logits);
  void reserve_handed(std::span<const StreamStates> streams);
  void read_handed(std::span<const StreamStates> streams, cudaStream_t stream) const;
  [[nodiscard]] bool is_planned(std::span<const std::int32_t> slots) const;
  [[nodiscard]] std::int64_t lengths_of(std::span<const std::int32_t> slots) const;
  void note_plan(const Shape& shape, std::span<const std::int32_t> slots);
  void renew_tables();
  void fill_adapters(std::span<const DeviceLora* const> adapters, const Shape& shape,
                     cudaStream_t stream);
  void fill_inputs(std::span<const std::int32_t> slots, std::span<const std::int32_t> tokens,
                   int size);
  [[nodiscard]] const winnow::cuda::Graph& graph_of(const Shape& shape,
                                                    const winnow::cuda::Stream& stream);
  void choose(std::span<const RowChoice> rows, int size, const winnow::cuda::Stream& stream);
  void put_step(const Shape& shape, cudaStream_t stream);
  bool put_layers(const Shape& shape, cudaStream_t stream);
  void put_choice(int size, cudaStream_t stream);
  void put_end(int size, cudaStream_t stream);
  [[nodiscard]] kvcache::cuda::TokenAttention& attention_of(bool padded) {
    return padded ? *padded_attention_ : attention_;
  }

  const DeviceModel& model_;
  kvcache::cuda::DeviceCache& cache_;
  OutputHead& head_;
  int most_;
  LinearPaths paths_;
  AdaptedRows adapted_;
  std::unique_ptr<StepKernel> kernel_;  // null: there is none
  // Steps without padding have a plan of their own, which also chooses the kind of kernel_.
  kvcache::cuda::TokenAttention attention_;
  std::optional<kvcache::cuda::TokenAttention> padded_attention_;
  // The slots and lengths of the last planned step, if it was one kernel.
  std::vector<std::int32_t> planned_slots_;
  std::int64_t planned_lengths_ = 0;
  int generation_ = -1;        // of the cache's tables in the graphs
  int ranks_generation_ = -1;  // of the ranks' shared memory
  std::map<Shape, winnow::cuda::Graph> graphs_;
  StreamRows handed_;
  std::string_view last_path_;
  std::set<std::pair<int, bool>> warmed_;       // padded sizes and paths whose kernels have run
  std::map<int, winnow::cuda::Graph> choices_;  // for restricted steps, by size

  winnow::cuda::PinnedBuffer<std::int32_t> inputs_;  // [2, size] slots, tokens
  StepTokens results_;                               // [size]
  winnow::cuda::DeviceBuffer<std::int32_t> slots_;   // [size]
  winnow::cuda::DeviceBuffer<float2> angles_;        // [tables, size, head_dim / 2]
  winnow::cuda::DeviceBuffer<float> qkv_;            // [size, qkv_width]
  winnow::cuda::DeviceBuffer<float> queries_;        // [size, query_width]
  winnow::cuda::DeviceBuffer<bf16> attended_;        // [size, mixer_width]
};

}  // namespace winnow::model::cuda
