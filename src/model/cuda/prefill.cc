#include "model/cuda/prefill.h"

#include <algorithm>
#include <limits>

#include "ops/cuda/prefill_attention.h"
#include "ops/cuda/rope.h"

namespace winnow::model::cuda {
namespace {

// Of a cache without a window: the chunk itself is seen whole.
constexpr int kEndless = std::numeric_limits<int>::max() / 2;

template <class T>
void copy_to(const winnow::cuda::DeviceBuffer<T>& target, const std::vector<T>& source,
             cudaStream_t stream) {
  winnow::cuda::check(cudaMemcpyAsync(target.data(), source.data(), source.size() * sizeof(T),
                                      cudaMemcpyHostToDevice, stream),
                      "copy a step's tokens to the device");
}

int size_of(const PromptChunk& chunk) {
  return static_cast<int>(chunk.tokens.size());
}

}  // namespace

Prefill::Prefill(const DeviceModel& model, const MatrixWeights& matrices,
                 kvcache::cuda::DeviceCache& cache, OutputHead& head)
    : model_(model), cache_(cache), head_(head), rows_(model, matrices) {}

void Prefill::reserve(std::size_t tokens, int longest_chunk) {
  const ModelConfig& config = model_.config();
  const auto width = [tokens](int cols) { return tokens * static_cast<std::size_t>(cols); };
  if (!band_ || band_->stride < cache_.view().ring + longest_chunk) {
    band_.reset();  // give the old memory back before asking for more
    band_ = std::make_unique<kvcache::cuda::Band>(cache_, longest_chunk);
  }
  tokens_.ensure(tokens);
  positions_.ensure(tokens);
  wanted_.ensure(tokens);
  angles_.ensure(width(config.head_dim / 2));
  rows_.reserve(tokens);
  qkv_.ensure(width(model_.qkv_width()));
  queries_.ensure(width(model_.query_width()));
  attended_.ensure(width(model_.query_width()));
  attention_scratch_.ensure(ops::cuda::prefill_scratch_bytes(
      cache_.layout(), config.kv_heads, band_->stride, cache_.view().archive_stride));
}

void Prefill::run(std::span<const PromptChunk> chunks, std::span<const ops::cuda::SampledRow> rows,
                  ops::Matrix<float> logits, std::span<std::int32_t> tokens,
                  const winnow::cuda::Stream& stream) {
  std::size_t count = 0;
  int longest = 0;
  for (const PromptChunk& chunk : chunks) {
    count += chunk.tokens.size();
    longest = std::max(longest, size_of(chunk));
  }
  reserve(count, longest);
  const std::size_t wanted = upload(chunks, stream.get());
  embed(count, stream.get());
  const int last = model_.config().layers - 1;
  for (int layer = 0; layer <= last; ++layer) {
    attention(layer, chunks, count, stream);
    if (layer == last) {
      // Nobody asks for the other rows once the last layer's cache has them.
      count = wanted;
      rows_.keep_rows(wanted_.data(), static_cast<int>(count), attended_.data(), stream.get());
    }
    rows_.finish_layer(layer, attended_.data(), static_cast<int>(count), stream.get());
  }
  for (const PromptChunk& chunk : chunks) {
    kvcache::cuda::advance(cache_, chunk.slot, size_of(chunk), stream.get());
  }
  cache_.report_free_pages(stream.get());
  head_.read(rows_.finish(static_cast<int>(wanted), stream.get()), wanted, rows, logits, tokens,
             stream);
}

// Returns how many rows' logits are wanted.
std::size_t Prefill::upload(std::span<const PromptChunk> chunks, cudaStream_t stream) {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> positions;
  std::vector<std::int32_t> wanted;
  for (const PromptChunk& chunk : chunks) {
    for (std::size_t t = 0; t < chunk.tokens.size(); ++t) {
      if (t + chunk.logit_rows >= chunk.tokens.size()) {
        wanted.push_back(static_cast<std::int32_t>(tokens.size()));
      }
      tokens.push_back(chunk.tokens[t]);
      positions.push_back(cache_.length(chunk.slot) + static_cast<std::int32_t>(t));
    }
  }
  copy_to(tokens_, tokens, stream);
  copy_to(positions_, positions, stream);
  copy_to(wanted_, wanted, stream);
  winnow::cuda::check(cudaStreamSynchronize(stream), "copy a step's tokens to the device");
  return wanted.size();
}

void Prefill::embed(std::size_t tokens, cudaStream_t stream) {
  const int rows = static_cast<int>(tokens);
  ops::cuda::rope_angles(angles_.data(), model_.frequencies().data(), model_.config().head_dim / 2,
                         positions_.data(), rows, stream);
  rows_.embed(tokens_.data(), rows, stream);
}

void Prefill::attention(int layer, std::span<const PromptChunk> chunks, std::size_t tokens,
                        const winnow::cuda::Stream& stream) {
  const ModelConfig& config = model_.config();
  const auto& view = cache_.view();
  rows_.project(layer, qkv_.data(), static_cast<int>(tokens), stream.get());
  std::size_t first = 0;
  for (const PromptChunk& chunk : chunks) {
    const auto at = [first](auto* matrix, int width) {
      return matrix + first * static_cast<std::size_t>(width);
    };
    const int length = cache_.length(chunk.slot);
    const auto projection = model_.projection(layer, at(rows_.hidden(), config.hidden),
                                              at(angles_.data(), config.head_dim / 2));
    bf16* queries = at(queries_.data(), model_.query_width());
    kvcache::cuda::append(
        cache_, projection,
        kvcache::cuda::PrefillAppend{layer, chunk.slot, length, size_of(chunk),
                                     at(qkv_.data(), model_.qkv_width()), queries},
        *band_, stream.get());
    const std::size_t row = view.row(layer, chunk.slot, 0);
    ops::cuda::prefill_attention(cache_.layout(), config.kv_heads, config.group(), model_.scale(),
                                 {.query = queries,
                                  .out = at(attended_.data(), model_.query_width()),
                                  .tokens = size_of(chunk),
                                  .lead = kvcache::cuda::lead_of(cache_, length),
                                  .window = view.ring > 0 ? view.ring - 1 : kEndless,
                                  .band_keys = band_->keys.data(),
                                  .band_values = band_->values.data(),
                                  .band_scales = band_->scales.data(),
                                  .band_stride = band_->stride,
                                  .pool = view.pool,
                                  .archive_pages = view.archive_pages + row * view.archive_stride,
                                  .archive_stride = view.archive_stride,
                                  .archive_counts = band_->seen.data(),
                                  .scratch = attention_scratch_.data()},
                                 stream.get());
    if (chunk.visible.data != nullptr) {
      read_visible(layer, chunk, stream);
    }
    first += chunk.tokens.size();
  }
}

void Prefill::read_visible(int layer, const PromptChunk& chunk,
                           const winnow::cuda::Stream& stream) const {
  const int heads = model_.config().kv_heads;
  const int lead = kvcache::cuda::lead_of(cache_, cache_.length(chunk.slot));
  const int window = cache_.view().ring > 0 ? cache_.view().ring - 1 : kEndless;
  std::vector<std::int32_t> seen(chunk.tokens.size() * static_cast<std::size_t>(heads));
  stream.synchronize();
  band_->seen.read(seen);
  for (std::size_t t = 0; t < chunk.tokens.size(); ++t) {
    for (int head = 0; head < heads; ++head) {
      chunk.visible.row(t)[static_cast<std::size_t>(layer * heads + head)] =
          seen[static_cast<std::size_t>(head) * chunk.tokens.size() + t] +
          std::min(lead + static_cast<int>(t), window) + 1;
    }
  }
}

}  // namespace winnow::model::cuda
