#include "model/cuda/prefill.h"

#include <algorithm>
#include <limits>

#include "ops/cuda/activation.h"
#include "ops/cuda/gather.h"
#include "ops/cuda/norm.h"
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

Prefill::Prefill(const DeviceModel& model, kvcache::cuda::DeviceCache& cache, OutputHead& head)
    : model_(model), cache_(cache), head_(head) {}

void Prefill::reserve(std::size_t tokens, int longest_chunk) {
  const ModelConfig& config = model_.config();
  const auto width = [tokens](int cols) { return tokens * static_cast<std::size_t>(cols); };
  if (!band_ || band_->stride < cache_.most_ring() + longest_chunk) {
    band_.reset();  // give the old memory back before asking for more
    band_ = std::make_unique<kvcache::cuda::Band>(cache_, longest_chunk);
  }
  tokens_.ensure(tokens);
  positions_.ensure(tokens);
  wanted_.ensure(tokens);
  angles_.ensure(width(config.head_dim / 2));
  hidden_.ensure(width(config.hidden));
  square_sums_.ensure(tokens);
  normed_.ensure(width(config.hidden));
  qkv_.ensure(width(model_.qkv_width()));
  queries_.ensure(width(model_.query_width()));
  attended_.ensure(width(model_.query_width()));
  gate_up_.ensure(width(std::max(
      {2 * config.intermediate, 2 * config.hidden, model_.query_width()})));  // also scratch
  activated_.ensure(width(config.intermediate));
  attention_scratch_.ensure(ops::cuda::prefill_scratch_bytes(
      cache_.layout(), config.kv_heads, band_->stride, cache_.view().archive_stride));
}

void Prefill::run(std::span<const PromptChunk> chunks, ops::Matrix<float> logits,
                  std::span<std::int32_t> best, const winnow::cuda::Stream& stream) {
  std::size_t tokens = 0;
  int longest = 0;
  for (const PromptChunk& chunk : chunks) {
    tokens += chunk.tokens.size();
    longest = std::max(longest, size_of(chunk));
  }
  reserve(tokens, longest);
  const std::size_t wanted = upload(chunks, stream.get());
  embed(tokens, stream.get());
  const int last = model_.config().layers - 1;
  for (int layer = 0; layer <= last; ++layer) {
    attention(layer, chunks, tokens, stream);
    if (layer == last) {
      keep_logit_rows(wanted, stream.get());
    }
    finish_layer(layer, layer == last ? wanted : tokens, stream.get());
  }
  for (const PromptChunk& chunk : chunks) {
    kvcache::cuda::advance(cache_, chunk.slot, size_of(chunk), stream.get());
  }
  cache_.report_free_pages(stream.get());
  ops::cuda::rms_norm(normed_.data(), hidden_.data(), static_cast<int>(wanted),
                      model_.config().hidden, model_.weights().norm.data(),
                      model_.config().norm_eps, stream.get());
  head_.read(normed_.data(), wanted, logits, best, stream);
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
  ops::cuda::embed_rows(
      model_.weights().embedding.view(), tokens_.data(), rows,
      {hidden_.data(), model_.layer(0).attention_norm.data(), normed_.data(), square_sums_.data()},
      {stream});
}

void Prefill::attention(int layer, std::span<const PromptChunk> chunks, std::size_t tokens,
                        const winnow::cuda::Stream& stream) {
  const ModelConfig& config = model_.config();
  const DeviceLayerWeights& w = model_.layer(layer);
  const auto& view = cache_.view();
  ops::cuda::rms_norm(normed_.data(), hidden_.data(), static_cast<int>(tokens), config.hidden,
                      w.attention_norm.data(), config.norm_eps, stream.get());
  linear_.multiply(qkv_.data(), normed_.data(), matrices_.get(w.qkv.view(), stream.get()),
                   static_cast<int>(tokens), model_.qkv_width(), config.hidden, stream.get());
  std::size_t first = 0;
  for (const PromptChunk& chunk : chunks) {
    const auto at = [first](auto* matrix, int width) {
      return matrix + first * static_cast<std::size_t>(width);
    };
    const int length = cache_.length(chunk.slot);
    const auto projection = model_.projection(layer, at(hidden_.data(), config.hidden),
                                              at(angles_.data(), config.head_dim / 2));
    bf16* queries = at(queries_.data(), model_.query_width());
    kvcache::cuda::append(
        cache_, projection,
        kvcache::cuda::PrefillAppend{layer, chunk.slot, length, size_of(chunk),
                                     at(qkv_.data(), model_.qkv_width()), queries},
        *band_, stream.get());
    const std::size_t row = view.row(layer, chunk.slot, 0);
    const int window = window_of(chunk.slot);
    ops::cuda::prefill_attention(cache_.layout(), config.kv_heads, config.group(), model_.scale(),
                                 {.query = queries,
                                  .out = at(attended_.data(), model_.query_width()),
                                  .tokens = size_of(chunk),
                                  .lead = kvcache::cuda::lead_of(cache_, chunk.slot, length),
                                  .window = window,
                                  .band_keys = band_->keys.data(),
                                  .band_values = band_->values.data(),
                                  .band_scales = band_->scales.data(),
                                  .band_stride = band_->stride,
                                  .band_in_16_bits = band_->in_16_bits,
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

// Of the band: what the cache's window is. Without one a query sees all of the chunk before it, but
// for DMC only the entry that is open at its own token.
int Prefill::window_of(int slot) const {
  const int ring = cache_.ring(slot);
  return cache_.merges() ? 0 : ring > 0 ? ring - 1 : kEndless;
}

// Nobody asks for the other rows once the last layer's cache has them.
void Prefill::keep_logit_rows(std::size_t rows, cudaStream_t stream) {
  const auto gather = [&](void* scratch, void* matrix, std::size_t row_bytes) {
    ops::cuda::gather_rows(scratch, matrix, wanted_.data(), static_cast<int>(rows), row_bytes,
                           stream);
    winnow::cuda::check(
        cudaMemcpyAsync(matrix, scratch, rows * row_bytes, cudaMemcpyDeviceToDevice, stream),
        "keep the rows whose logits are wanted");
  };
  gather(gate_up_.data(), attended_.data(),
         static_cast<std::size_t>(model_.query_width()) * sizeof(bf16));
  gather(gate_up_.data(), hidden_.data(),
         static_cast<std::size_t>(model_.config().hidden) * sizeof(float));
}

// The layer behind its attention.
void Prefill::finish_layer(int layer, std::size_t rows, cudaStream_t stream) {
  const ModelConfig& config = model_.config();
  const DeviceLayerWeights& w = model_.layer(layer);
  const int count = static_cast<int>(rows);
  const auto add_to_hidden = [&](const bf16* x, const ops::cuda::DeviceWeight& weight,
                                 const FloatBuffer& bias, int inputs) {
    linear_.multiply_add(hidden_.data(), x, matrices_.get(weight.view(), stream), count,
                         config.hidden, inputs, stream);
    if (bias.size() > 0) {
      ops::cuda::add_bias(hidden_.data(), count, config.hidden, bias.data(), stream);
    }
  };
  add_to_hidden(attended_.data(), w.output, w.output_bias, model_.query_width());
  ops::cuda::rms_norm(normed_.data(), hidden_.data(), count, config.hidden, w.mlp_norm.data(),
                      config.norm_eps, stream);
  linear_.multiply(gate_up_.data(), normed_.data(), matrices_.get(w.gate_up.view(), stream), count,
                   2 * config.intermediate, config.hidden, stream);
  ops::cuda::silu_multiply(activated_.data(), gate_up_.data(), count, config.intermediate,
                           w.gate_up_bias.size() > 0 ? w.gate_up_bias.data() : nullptr, stream);
  add_to_hidden(activated_.data(), w.down, w.down_bias, config.intermediate);
}

void Prefill::read_visible(int layer, const PromptChunk& chunk,
                           const winnow::cuda::Stream& stream) const {
  const int heads = model_.config().kv_heads;
  const int lead = kvcache::cuda::lead_of(cache_, chunk.slot, cache_.length(chunk.slot));
  const int window = window_of(chunk.slot);
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
