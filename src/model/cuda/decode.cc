#include "model/cuda/decode.h"

#include <algorithm>
#include <utility>

#include "model/cuda/step_kernels.h"

namespace winnow::model::cuda {
namespace {

constexpr std::size_t kMost = Decode::kMostSequences;

// Largest number of parts that a row's square sums come in.
std::size_t most_parts(const DeviceModel& model) {
  int parts = 1;
  for (const DeviceLayerWeights& layer : model.weights().layers) {
    parts = std::max({parts, ops::cuda::linear_parts(layer.output.view()),
                      ops::cuda::linear_parts(layer.down.view())});
  }
  return static_cast<std::size_t>(parts);
}

std::size_t width(int cols) {
  return kMost * static_cast<std::size_t>(cols);
}

const float* data_or_null(const FloatBuffer& buffer) {
  return buffer.size() > 0 ? buffer.data() : nullptr;
}

}  // namespace

Decode::Decode(const DeviceModel& model, kvcache::cuda::DeviceCache& cache, OutputHead& head)
    : model_(model),
      cache_(cache),
      head_(head),
      plan_(cache.layout(), model.config().group(), model.config().kv_heads, kMostSequences,
            model.config().layers),
      inputs_(2 * kMost),
      results_(kMost),
      device_inputs_(2 * kMost),
      angles_(width(model.config().head_dim / 2)),
      hidden_(width(model.config().hidden)),
      normed_(width(model.config().hidden)),
      square_sums_(kMost * most_parts(model)),
      qkv_(width(model.qkv_width())),
      queries_(width(model.query_width())),
      attended_(width(model.query_width())),
      activated_(width(model.config().intermediate)) {}

void Decode::run(std::span<const std::int32_t> slots, std::span<const std::int32_t> tokens,
                 ops::Matrix<float> logits, std::span<std::int32_t> best,
                 const winnow::cuda::Stream& stream) {
  const bool with_logits = logits.rows > 0;
  const std::size_t batch = slots.size();
  std::ranges::copy(slots, inputs_.data());
  std::ranges::copy(tokens, inputs_.data() + batch);
  if (generation_ != cache_.generation()) {
    graphs_.clear();
    generation_ = cache_.generation();
  }
  const auto key = std::pair(static_cast<int>(batch), with_logits);
  auto graph = graphs_.find(key);
  if (graph == graphs_.end()) {
    graph = graphs_.try_emplace(key, stream, [&] { capture(key.first, with_logits, stream.get()); })
                .first;
  }
  graph->second.launch(stream);
  for (const std::int32_t slot : slots) {
    cache_.advance(slot, 1);
  }
  if (with_logits) {
    winnow::cuda::check(
        cudaMemcpyAsync(logits.data, head_.logits(), batch * logits.cols * sizeof(float),
                        cudaMemcpyDeviceToHost, stream.get()),
        "read logits");
  }
  stream.synchronize();
  std::copy_n(results_.data(), best.size(), best.data());
}

// Everything that one step puts into the stream.
void Decode::capture(int batch, bool with_logits, cudaStream_t stream) {
  const ModelConfig& config = model_.config();

  const auto& view = cache_.view();
  begin_step({.host = inputs_.data(),
              .device = device_inputs_.data(),
              .lengths = view.lengths,
              .frequencies = model_.frequencies().data(),
              .angles = angles_.data(),
              .half = config.head_dim / 2},
             batch, stream);
  const std::int32_t* slots = device_inputs_.data();
  plan_.make(entries(0), view.row(1, 0, 0), batch, stream);
  ops::cuda::embed_rows(model_.weights().embedding.view(), slots + batch, batch,
                        residual(model_.layer(0).attention_norm), {stream, true});
  for (int l = 0; l < config.layers; ++l) {
    layer(l, batch, stream);
  }
  head_.run({.x = normed_.data(),
             .rows = batch,
             .square_sums = square_sums_.data(),
             .parts = ops::cuda::linear_parts(model_.layer(config.layers - 1).down.view()),
             .eps = config.norm_eps},
            with_logits, {stream, true});
  end_step({.slots = slots,
            .lengths = view.lengths,
            .tokens = head_.tokens(),
            .free_pages = view.free_count,
            .host_tokens = results_.data(),
            .host_free_pages = cache_.reported_free_pages()},
           batch, stream);
}

void Decode::layer(int layer, int batch, cudaStream_t stream) {
  const ModelConfig& config = model_.config();
  const DeviceLayerWeights& w = model_.layer(layer);
  const ops::cuda::RowsLaunch launch{stream, true};
  const auto normed = [&](int parts) {
    return ops::cuda::RowsInput{.x = normed_.data(),
                                .rows = batch,
                                .square_sums = square_sums_.data(),
                                .parts = parts,
                                .eps = config.norm_eps};
  };
  const int parts_before =
      layer == 0 ? 1 : ops::cuda::linear_parts(model_.layer(layer - 1).down.view());
  ops::cuda::linear_rows({w.qkv.view(), nullptr}, normed(parts_before), qkv_.data(), launch);
  kvcache::cuda::append(cache_, model_.projection(layer, hidden_.data(), angles_.data()),
                        kvcache::cuda::DecodeAppend{layer, batch, device_inputs_.data(),
                                                    qkv_.data(), queries_.data()},
                        stream);
  plan_.attend(layer, entries(layer), model_.scale(), queries_.data(), attended_.data(), stream);
  ops::cuda::linear_rows_residual({w.output.view(), data_or_null(w.output_bias)},
                                  {.x = attended_.data(), .rows = batch}, residual(w.mlp_norm),
                                  launch);
  ops::cuda::linear_rows_silu({w.gate_up.view(), data_or_null(w.gate_up_bias)},
                              normed(ops::cuda::linear_parts(w.output.view())), activated_.data(),
                              launch);
  const FloatBuffer& next_norm =
      layer + 1 < config.layers ? model_.layer(layer + 1).attention_norm : model_.weights().norm;
  ops::cuda::linear_rows_residual({w.down.view(), data_or_null(w.down_bias)},
                                  {.x = activated_.data(), .rows = batch}, residual(next_norm),
                                  launch);
}

ops::cuda::DecodeEntries Decode::entries(int layer) const {
  const auto& view = cache_.view();
  const std::size_t row = view.row(layer, 0, 0);
  return {.pool = view.pool,
          .archive_pages = view.archive_pages + row * view.archive_stride,
          .archive_stride = view.archive_stride,
          .archive_counts = view.archive_counts + row,
          .window_pages = view.window_pages + row * view.window_stride,
          .window_stride = view.window_stride,
          .lengths = view.lengths,
          .window = view.ring - 1,
          .slots = device_inputs_.data(),
          .kv_heads = view.kv_heads};
}

ops::cuda::ResidualRows Decode::residual(const FloatBuffer& next_norm) const {
  return {hidden_.data(), next_norm.data(), normed_.data(), square_sums_.data()};
}

}  // namespace winnow::model::cuda
