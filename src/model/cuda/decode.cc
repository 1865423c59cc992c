#include "model/cuda/decode.h"

#include <algorithm>
#include <array>
#include <utility>

#include "model/cuda/step_kernels.h"

namespace winnow::model::cuda {
namespace {

constexpr std::size_t kMost = SkinnyLayers::kMost;
constexpr std::array<ops::cuda::SampledRow, kMost> kGreedy{};

constexpr int kStepsOfPlan = 64;

std::size_t width(int cols) {
  return kMost * static_cast<std::size_t>(cols);
}

}  // namespace

Decode::Decode(const DeviceModel& model, kvcache::cuda::DeviceCache& cache, OutputHead& head)
    : model_(model),
      cache_(cache),
      head_(head),
      attention_(cache, most_sequences()),
      rows_(model),
      inputs_(2 * kMost),
      results_(kMost),
      slots_(kMost),
      angles_(width(model.config().head_dim / 2)),
      qkv_(width(model.qkv_width())),
      queries_(width(model.query_width())),
      attended_(width(model.query_width())) {
  const WholeStepLayers layers = whole_step_layers(false);
  if (WholeStep::supports(cache_, layers.view())) {
    whole_step_.emplace(cache_, layers.view());
  }
}

void Decode::run(std::span<const std::int32_t> slots, std::span<const std::int32_t> tokens,
                 std::span<const ops::cuda::SampledRow> rows, ops::Matrix<float> logits,
                 std::span<std::int32_t> next, std::span<const ops::Matrix<std::int32_t>> visible,
                 const winnow::cuda::Stream& stream) {
  const bool with_logits = logits.rows > 0 || !rows.empty();
  const bool with_reads =
      std::ranges::any_of(visible, [](const auto& seen) { return seen.data != nullptr; });
  const std::size_t batch = slots.size();
  std::ranges::copy(slots, inputs_.data());
  std::ranges::copy(tokens, inputs_.data() + batch);
  if (generation_ != cache_.generation()) {
    graphs_.clear();
    attention_.reserve();
    generation_ = cache_.generation();
  }
  // In one kernel there is but one way; the plan says only how long rows are.
  const auto chained = whole_step_
                           ? whole_step_->rows_of(attention_.row_pages(), static_cast<int>(batch))
                           : std::nullopt;
  const Shape key{.batch = static_cast<int>(batch),
                  .with_logits = with_logits,
                  .with_reads = with_reads,
                  .way = chained ? kvcache::cuda::TokenAttention::Way::runs
                                 : attention_.faster_way(static_cast<int>(batch)),
                  .chained = chained,
                  .planned = !chained || !is_planned(slots)};
  if (key.planned) {
    const auto planned = slots.first(chained ? batch : 0);
    planned_slots_.assign(planned.begin(), planned.end());
    planned_lengths_ = lengths_of(planned);
  }

  auto graph = graphs_.find(key);
  if (graph == graphs_.end()) {
    graph = graphs_.try_emplace(key, stream, [&] { capture(key, stream.get()); }).first;
  }
  if (with_logits) {
    rows.empty() ? head_.choose_by(kGreedy) : head_.choose_by(rows);
  }
  results_.expect(batch);
  graph->second.launch(stream);
  for (const std::int32_t slot : slots) {
    cache_.advance(slot, 1);
  }
  if (logits.rows > 0) {
    winnow::cuda::check(
        cudaMemcpyAsync(logits.data, head_.logits(), batch * logits.cols * sizeof(float),
                        cudaMemcpyDeviceToHost, stream.get()),
        "read logits");
  }
  if (logits.rows > 0 || with_reads) {
    stream.synchronize();
  }
  std::ranges::copy(results_.wait(stream).first(next.size()), next.begin());
  if (with_reads) {
    attention_.tell_reads(visible);
  }
}

// A step in one kernel needs no plan, but what it tells of the rows' lengths. They change slowly,
// as long as the same sequences grow: another one in a slot mostly has another length. If it is
// taken for the one before, the way is chosen by that one's rows for a while.
bool Decode::is_planned(std::span<const std::int32_t> slots) const {
  const std::int64_t grown = lengths_of(slots) - planned_lengths_;
  const auto steps = static_cast<std::int64_t>(slots.size());
  return std::ranges::equal(slots, planned_slots_) && grown > 0 && grown < kStepsOfPlan * steps;
}

// Of all together.
std::int64_t Decode::lengths_of(std::span<const std::int32_t> slots) const {
  std::int64_t lengths = 0;
  for (const std::int32_t slot : slots) {
    lengths += cache_.length(slot);
  }
  return lengths;
}

// Everything that one step puts into the stream.
void Decode::capture(const Shape& shape, cudaStream_t stream) {
  const ModelConfig& config = model_.config();
  const auto& [batch, with_logits, with_reads, way, chained, planned] = shape;

  const auto& view = cache_.view();
  begin_step({.host = inputs_.data(),
              .slots = slots_.data(),
              .lengths = view.lengths,
              .frequencies = model_.frequencies().data(),
              .angles = angles_.data(),
              .half = config.head_dim / 2,
              .embedding = model_.weights().embedding.view(),
              .residual = rows_.residual()},
             batch, stream);
  const std::int32_t* slots = slots_.data();
  if (planned) {
    attention_.plan(slots, batch, way, stream, with_reads);
  }
  if (chained) {
    const WholeStepLayers layers = whole_step_layers(with_logits);
    const WholeStep::StepEnd end{results_.data(), cache_.reported_free_pages()};
    whole_step_->run(layers.view(), slots, batch, model_.scale(), *chained,
                     with_logits ? nullptr : &end, stream);
    if (!with_logits) {
      return;
    }
  } else {
    run_layers(batch, with_logits, stream);
  }
  if (with_logits) {
    head_.sample(batch, stream);
  }
  end_step({.slots = slots,
            .cache = view,
            .tokens = head_.tokens(),
            .host_tokens = results_.data(),
            .host_free_pages = cache_.reported_free_pages()},
           batch, stream);
}

// Between two attentions: the linear layers of a layer, then the q, k and v of the next one or the
// logits.
void Decode::run_layers(int batch, bool with_logits, cudaStream_t stream) {
  const ops::cuda::SkinnyGemm first = rows_.projection(0, qkv_.data());
  // Appending asks for slots before its predecessor is complete: a kernel between that one and
  // begin_step() must have waited for them.
  ops::cuda::skinny_gemm(std::span(&first, 1), batch, rows_.scratch(),
                         {stream, attention_.has_plan()});
  for (int l = 0; l < model_.config().layers; ++l) {
    attention(l, batch, stream);
    rows_.run(layers_behind(l, with_logits), batch, stream);
  }
}

Decode::WholeStepLayers Decode::whole_step_layers(bool with_logits) const {
  WholeStepLayers all{.linear = {rows_.projection(0, qkv_.data())}, .projections = {}};
  for (int l = 0; l < model_.config().layers; ++l) {
    all.projections.push_back(model_.projection(l, rows_.hidden(), angles_.data()));
    auto layers = layers_behind(l, with_logits);
    layers[0].input.x = nullptr;  // made by the whole step's attention
    all.linear.insert(all.linear.end(), layers.begin(), layers.end());
  }
  return all;
}

// What follows the attention of a layer, up to that of the next one.
std::array<ops::cuda::SkinnyGemm, 4> Decode::layers_behind(int attention, bool with_logits) const {
  const bool last = attention + 1 == model_.config().layers;
  const auto [output, gate_up, down] = rows_.behind_attention(attention, attended_.data());
  return {output, gate_up, down,
          last ? head_.layer(rows_.normed(), with_logits)
               : rows_.projection(attention + 1, qkv_.data())};
}

void Decode::attention(int layer, int batch, cudaStream_t stream) {
  attention_.append_and_attend(model_.projection(layer, rows_.hidden(), angles_.data()),
                               {.layer = layer,
                                .batch = batch,
                                .slots = slots_.data(),
                                .qkv = qkv_.data(),
                                .queries = queries_.data()},
                               model_.scale(), attended_.data(), stream);
}

}  // namespace winnow::model::cuda
