#include "model/cuda/batch_decode.h"

#include <algorithm>

#include "model/cuda/decode.h"
#include "model/cuda/step_kernels.h"

namespace winnow::model::cuda {
namespace {

std::size_t size_of(int rows, int cols) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols);
}

// What the head takes behind the last layer.
void norm_rows(LargeBatchLayers& linear, int rows, cudaStream_t stream) {
  linear.finish(rows, stream);
}
void norm_rows(const SmallBatchLayers& /*linear*/, int /*rows*/, cudaStream_t /*stream*/) {
  // The last layer has left it.
}

}  // namespace

BatchDecode::BatchDecode(const DeviceModel& model, const MatrixWeights& matrices,
                         kvcache::cuda::DeviceCache& cache, int most_sequences)
    : model_(model),
      cache_(cache),
      least_(least_sequences(model)),
      most_(LargeBatchLayers::padded(most_sequences)),
      attention_(cache, most_),
      many_(model, matrices, /*search=*/true),
      inputs_(size_of(2, most_)),
      rules_(size_of(1, most_)),
      results_(size_of(1, most_)),
      slots_(size_of(1, most_)),
      angles_(size_of(most_, model.config().head_dim / 2)),
      qkv_(size_of(most_, model.qkv_width())),
      queries_(size_of(most_, model.query_width())),
      attended_(size_of(most_, model.query_width())),
      logits_(size_of(most_, model.config().vocab)),
      tokens_(size_of(1, most_)) {
  if (SmallBatchLayers::supported()) {
    rows_.emplace(model);
  }
  if (!rows_ || most_ > SmallBatchLayers::kMost) {
    many_.reserve(size_of(1, most_));
  }
}

int BatchDecode::least_sequences(const DeviceModel& model) {
  return 1 + (SmallBatchLayers::supported() ? SkinnyLayers::most_chained(model.config())
                                            : Decode::most_sequences());
}

void BatchDecode::run(std::span<const std::int32_t> slots, std::span<const std::int32_t> tokens,
                      std::span<const ops::cuda::SampledRow> rows, ops::Matrix<float> logits,
                      std::span<std::int32_t> next, const winnow::cuda::Stream& stream) {
  const int size = LargeBatchLayers::padded(static_cast<int>(slots.size()));
  const winnow::cuda::Graph& step = graph(size, stream);
  fill_inputs(slots, tokens, rows, size);
  results_.expect(size_of(1, size));
  step.launch(stream);
  for (const std::int32_t slot : slots) {
    cache_.advance(slot, 1);
  }
  if (logits.rows > 0) {
    winnow::cuda::check(
        cudaMemcpyAsync(logits.data, logits_.data(), slots.size() * logits.cols * sizeof(float),
                        cudaMemcpyDeviceToHost, stream.get()),
        "read logits");
    stream.synchronize();
  }
  std::ranges::copy(results_.wait(stream).first(next.size()), next.begin());
}

void BatchDecode::fill_inputs(std::span<const std::int32_t> slots,
                              std::span<const std::int32_t> tokens,
                              std::span<const ops::cuda::SampledRow> rows, int size) {
  std::fill_n(inputs_.data(), size, kNoSlot);
  std::fill_n(inputs_.data() + size, size, 0);
  std::ranges::copy(slots, inputs_.data());
  std::ranges::copy(tokens, inputs_.data() + size);
  std::fill_n(rules_.data(), size, ops::cuda::SampledRow{});
  std::ranges::copy(rows, rules_.data());
}

const winnow::cuda::Graph& BatchDecode::graph(int size, const winnow::cuda::Stream& stream) {
  if (generation_ != cache_.generation()) {
    graphs_.clear();
    attention_.reserve();
    generation_ = cache_.generation();
  }
  auto found = graphs_.find(size);
  if (found == graphs_.end()) {
    // Nothing but padding, once: linear layers try their algorithms, and libraries load their
    // kernels, which a capture may not do.
    fill_inputs({}, {}, {}, size);
    step(size, stream.get());
    stream.synchronize();
    found = graphs_.try_emplace(size, stream, [&] { step(size, stream.get()); }).first;
  }
  return found->second;
}

void BatchDecode::step(int size, cudaStream_t stream) {
  if (rows_.has_value() && size <= SmallBatchLayers::kMost) {
    step_by(*rows_, size, stream);
  } else {
    step_by(many_, size, stream);
  }
}

// Everything that one step puts into the stream.
template <class LinearLayers>
void BatchDecode::step_by(LinearLayers& linear, int size, cudaStream_t stream) {
  const ModelConfig& config = model_.config();
  const auto& view = cache_.view();
  const std::int32_t* slots = slots_.data();
  begin_step({.host = inputs_.data(),
              .slots = slots_.data(),
              .lengths = view.lengths,
              .frequencies = model_.frequencies().data(),
              .angles = angles_.data(),
              .half = config.head_dim / 2,
              .embedding = model_.weights().embedding.view(),
              .residual = linear.residual()},
             size, stream);
  // More rows than clusters are good for.
  attention_.plan(slots, size, kvcache::cuda::TokenAttention::Way::runs, stream);
  for (int layer = 0; layer < config.layers; ++layer) {
    linear.project(layer, qkv_.data(), size, stream);
    attention_.append_and_attend(model_.projection(layer, linear.hidden(), angles_.data()),
                                 {.layer = layer,
                                  .batch = size,
                                  .slots = slots,
                                  .qkv = qkv_.data(),
                                  .queries = queries_.data()},
                                 model_.scale(), attended_.data(), stream);
    linear.finish_layer(layer, attended_.data(), size, stream);
  }
  norm_rows(linear, size, stream);
  linear.logits(logits_.data(), size, stream);
  ops::cuda::sample_tokens(logits_.data(), size, config.vocab, rules_.data(), tokens_.data(),
                           stream);
  end_step({.slots = slots,
            .cache = view,
            .tokens = tokens_.data(),
            .host_tokens = results_.data(),
            .host_free_pages = cache_.reported_free_pages()},
           size, stream);
}

}  // namespace winnow::model::cuda
