#include "model/cuda/whole_step/whole_step.h"

#include <algorithm>
#include <bit>
#include <numbers>

#include "base/cuda/device.h"
#include "base/error.h"
#include "model/cuda/whole_step/whole_step_kernels.h"

namespace winnow::model::cuda {
namespace {

using ops::cuda::DeviceWeightFormat;

// All blocks wait for the longest row, while a separate attention kernel would spread its pages.
// With this many bytes more per warp than the mean, waiting costs as much as kernel boundaries.
constexpr double kMostBytesMore = 24 * 1024;
constexpr double kMostPagesOfShortRows = 2.0;  // per warp
// Per warp, for several sequences. With more, a step is bound by memory, which separate kernels
// keep busier.
constexpr double kMostPagesOfSeveral = 40.0;

// Of a block. With less, attention would leave too little memory for the weights.
constexpr int kLeastSharedMemory = 200 * 1024;

int most_sequences(const kvcache::cuda::DeviceCache& cache) {
  const int rows = winnow::cuda::multiprocessor_count();
  return cache.layout().head_dim() > kMostSeveralHeadDim
             ? 1
             : std::min(kMostWholeStepSequences, rows / cache.shape().kv_heads);
}

// Blocks per row, so that a sequence of some hundred entries has a page or two per warp.
int parts_of(int rows) {
  const int blocks = winnow::cuda::multiprocessor_count() / rows;
  return static_cast<int>(std::bit_floor(static_cast<unsigned>(std::min(kMostParts, blocks))));
}

std::size_t part_bytes(const kvcache::cuda::DeviceCache& cache,
                       const kvcache::cuda::Projection& projection, int sequences) {
  const int rows = sequences * projection.kv_heads;
  const auto parts = static_cast<std::size_t>(rows * parts_of(rows));
  const int floats = 2 * part_sums(projection.group) + projection.group * cache.layout().head_dim();
  return parts * static_cast<std::size_t>(floats) * sizeof(float);
}

// Attention reads and writes the published memory that the output projection o has been given.
void set_layers(std::span<const kvcache::cuda::Projection> projections, WholeStepProgram& program) {
  for (std::size_t i = 0; i < projections.size(); ++i) {
    const kvcache::cuda::Projection& projection = projections[i];
    const std::size_t o = 4 * i + 1;
    const std::uint32_t products_at = program.sums_at[o];
    const std::size_t products = sizeof(float) * static_cast<std::size_t>(program.rows) *
                                 static_cast<std::size_t>(program.layers[o - 1].linear.weight.rows);
    program.attention.of_layer[i] = {.bias = projection.bias,
                                     .query_norm = projection.query_norm,
                                     .key_norm = projection.key_norm,
                                     .products_at = products_at,
                                     .parts_at = products_at + static_cast<std::uint32_t>(products),
                                     .output_at = program.rows_at[o]};
  }
}

bool has_one_format(const DeviceModel& model) {
  const DeviceWeightFormat format = model.weights().head().format;
  return std::ranges::all_of(model.weights().layers, [format](const DeviceLayerWeights& layer) {
    return layer.qkv.view().format == format && layer.output.view().format == format &&
           layer.gate_up.view().format == format && layer.down.view().format == format;
  });
}

}  // namespace

bool WholeStep::takes(const DeviceModel& model, const kvcache::cuda::DeviceCache& cache) {
  using Kind = kvcache::cuda::DecisionSource::Kind;
  if (!model.is_plain() || !model.can_sum_rows()) {  // the first layer may have no attention
    return false;
  }
  const kvcache::cuda::Projection projection = model.projection(0, nullptr, {});
  const kvcache::cuda::DecisionSource& decision = projection.decision;
  const bool decides = decision.kind == Kind::none || decision.kind == Kind::channel;
  // Before the token is appended, it must be known whether the entry that it replaces is archived.
  const auto& view = cache.view();
  const bool decided_before = view.mark_words == 0 || view.ring > view.shift;
  return winnow::cuda::has_programmatic_launch() &&
         winnow::cuda::most_shared_memory() >= kLeastSharedMemory && decides &&
         has_one_format(model) && decided_before && projection.rotary < 0 &&
         !cache.shape().has_sliding_layers() && !cache.merges() && !cache.scores_entries() &&
         !cache.selects() && model.layers() <= kMostWholeStepLayers &&
         projection.kv_heads <= winnow::cuda::multiprocessor_count() &&
         projection.group <= kMostWholeStepGroup &&
         projection.group * cache.layout().head_dim() <= kMostGroupChannels &&
         with_whole_step_shape(cache.layout().format(), cache.layout().head_dim(),
                               []<ops::EntryFormat, int>() {});
}

WholeStep::WholeStep(const DeviceModel& model, const kvcache::cuda::DeviceCache& cache,
                     const OutputHead& head)
    : model_(model),
      cache_(cache),
      head_(head),
      rows_(model),
      most_sequences_(most_sequences(cache)),
      scratch_(most_published_bytes()),
      next_pages_(kMostWholeStepSequences) {
  next_pages_.fill(0);
  winnow::cuda::check(cudaDeviceSynchronize(), "clear a step's pages");
}

WholeStep::Layers WholeStep::layers_of(const float2* angles, bool with_logits,
                                       const StreamRows* states) const {
  Layers all;
  for (int l = 0; l < model_.layers(); ++l) {
    all.projections.push_back(model_.projection(l, rows_.hidden(), {angles, 0}));
    all.linear.push_back(rows_.projection(l, nullptr));  // its output is published
    auto behind = rows_.behind_attention(l, nullptr);    // attention publishes its input
    if (states != nullptr && l + 1 < model_.layers()) {
      behind.back().residual.kept = states->place_after(l + 1);
      behind.back().residual.kept_stride = states->stride();
    }
    all.linear.insert(all.linear.end(), behind.begin(), behind.end());
  }
  all.linear.push_back(head_.layer(rows_.normed(), with_logits));
  return all;
}

// The maximum over all numbers of sequences that a step may have.
std::size_t WholeStep::most_published_bytes() const {
  const Layers layers = layers_of(nullptr, false, nullptr);
  std::size_t most = 0;
  for (int sequences = 1; sequences <= most_sequences_; ++sequences) {
    const std::size_t parts = part_bytes(cache_, layers.projections[0], sequences);
    most = std::max(most, ops::cuda::lay_out_published(layers.linear, sequences, parts).bytes);
  }
  return most;
}

std::optional<RowKind> WholeStep::rows_of(const RowPages& pages, int sequences, int kv_heads,
                                          int warps, std::size_t page_bytes) {
  const double longest = pages.longest / warps;
  const double mean = pages.all / (sequences * kv_heads) / warps;
  if ((longest - mean) * static_cast<double>(page_bytes) > kMostBytesMore ||
      (sequences > 1 && longest > kMostPagesOfSeveral)) {
    return std::nullopt;
  }
  return sequences == 1 && longest <= kMostPagesOfShortRows ? RowKind::short_rows
                                                            : RowKind::long_rows;
}

std::optional<RowKind> WholeStep::rows_of(const RowPages& pages, int sequences) const {
  if (sequences > most_sequences_) {
    return std::nullopt;
  }
  const int kv_heads = cache_.shape().kv_heads;
  return rows_of(pages, sequences, kv_heads, parts_of(sequences * kv_heads) * kAttentionWarps,
                 cache_.layout().page_bytes());
}

void WholeStep::run(const Step& step, RowKind rows, const End* end, cudaStream_t stream) const {
  const int sequences = step.sequences;
  require(sequences >= 1 && sequences <= most_sequences_,
          "a whole step takes 1 to {} sequences, not {}", most_sequences_, sequences);
  rows_.sum_embedded(sequences, stream);
  const Layers layers = layers_of(step.angles, step.with_logits, step.states);
  const kvcache::cuda::Projection& projection = layers.projections[0];
  const DeviceWeightFormat weights = layers.linear[0].linear.weight.format;
  WholeStepProgram program;
  ops::cuda::fill(program, layers.linear, sequences, scratch_,
                  part_bytes(cache_, projection, sequences));
  WholeStepArguments& attention = program.attention;
  attention.cache = cache_.view();
  attention.slots = step.slots;
  attention.sequences = sequences;
  attention.layers = model_.layers();
  attention.group = projection.group;
  attention.group_inverse = (1 << kInverseBits) / projection.group + 1;
  attention.parts = parts_of(sequences * projection.kv_heads);
  attention.parts_log2 = std::countr_zero(static_cast<unsigned>(attention.parts));
  attention.chunk_log2 = std::countr_zero(static_cast<unsigned>(ops::cuda::chunk_columns(weights)));
  attention.chunk_values = ops::cuda::chunk_pitch(weights) / static_cast<int>(sizeof(bf16));
  attention.scale = model_.scale() * std::numbers::log2e_v<float>;
  attention.eps = projection.eps;
  attention.angles = projection.angles;
  attention.decision = projection.decision;
  if (end != nullptr) {
    attention.end = {end->tokens, end->free_pages, next_pages_.data()};
  }
  set_layers(layers.projections, program);
  const WholeStepKind kind{cache_.layout().format(), cache_.layout().head_dim(),
                           rows == RowKind::long_rows};
  switch (weights) {
    case DeviceWeightFormat::bf16:
      return launch_whole_step_bf16(kind, program, stream);
    case DeviceWeightFormat::fp8:
      return launch_whole_step_fp8(kind, program, stream);
    case DeviceWeightFormat::int8:
      return launch_whole_step_int8(kind, program, stream);
    case DeviceWeightFormat::int4:
      return launch_whole_step_int4(kind, program, stream);
  }
}

}  // namespace winnow::model::cuda
