#include "model/cuda/prefill.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

#include "ops/cuda/prefill/prefill_attention.h"
#include "ops/cuda/rope.h"

namespace winnow::model::cuda {
namespace {

// A prompt may have any number of rows.
constexpr int kAnyRows = std::numeric_limits<int>::max() / 2;

// For tokens that choose pages.
constexpr int kTokensAtOnce = 16;

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
    : model_(model),
      cache_(cache),
      head_(head),
      paths_(model, matrices, {.rows = kAnyRows}),
      handed_(model) {
  if (cache.drops()) {
    const kvcache::CacheShape& shape = cache.shape();
    if (cache.drops_each()) {
      score_eviction_.emplace(cache, 1, model.ranks());
    } else {
      rounds_.emplace(cache);
    }
    if (model.spec().shares_entries()) {
      rest_.emplace(cache.layout(), shape.most_group(), shape.most_kv_heads(), 1);
      rest_queries_.ensure(static_cast<std::size_t>(model.query_width()));
    }
  } else if (cache.selects()) {
    quest_.emplace(cache, kTokensAtOnce, 1);
  }
}

void Prefill::reserve(LinearPath& linear, std::size_t tokens, int longest_chunk) {
  const auto rows = static_cast<std::size_t>(linear.padded(static_cast<int>(tokens)));
  const auto width = [rows](int cols) { return rows * static_cast<std::size_t>(cols); };
  if (!band_ || band_->stride < cache_.most_ring() + longest_chunk) {
    band_.reset();  // frees the old memory before the new allocation
    band_ = std::make_unique<kvcache::cuda::Band>(cache_, longest_chunk);
  }
  if (score_eviction_) {
    score_eviction_->reserve();
  } else if (rounds_) {
    rounds_->reserve();
  } else if (quest_) {
    quest_->reserve();
  }
  tokens_.ensure(tokens);
  positions_.ensure(tokens);
  wanted_.ensure(tokens);
  angle_stride_ = width(model_.rotary_channels() / 2);
  angles_.ensure(angle_stride_ * static_cast<std::size_t>(model_.rope_tables()));
  linear.reserve(static_cast<int>(tokens));
  linear.rounds_qkv() ? qkv_.ensure(width(model_.qkv_width()))
                      : exact_qkv_.ensure(width(model_.qkv_width()));
  queries_.ensure(width(model_.query_width()));
  attended_.ensure(width(model_.mixer_width()));
  attention_scratch_.ensure(
      ops::cuda::prefill_scratch_bytes(cache_.layout(), cache_.shape().most_kv_heads(),
                                       band_->stride, cache_.view().archive_stride));
}

bool Prefill::takes_at_once(const PromptChunk& chunk) const {
  const int tokens = size_of(chunk);
  const int length = cache_.length(chunk.slot);
  for (int layer = 0; layer < cache_.shape().layers; ++layer) {
    const kvcache::Rule rule = cache_.rule(chunk.slot, layer);
    if (rule.rows_at_once(length, tokens) < tokens ||
        (cache_.limits_archive(layer) && rule.sure_room(length) < tokens)) {
      return false;
    }
  }
  return true;
}

// Runs the chunks one after another, token by token.
void Prefill::run_by_token(std::span<const PromptChunk> chunks, std::span<const RowChoice> rows,
                           ops::Matrix<float> logits, std::span<std::int32_t> tokens,
                           const winnow::cuda::Stream& stream) {
  std::size_t row = 0;
  for (const PromptChunk& chunk : chunks) {
    for (std::size_t t = 0; t < chunk.tokens.size(); ++t) {
      PromptChunk one = chunk;
      one.tokens = chunk.tokens.subspan(t, 1);
      one.logit_rows = t + chunk.logit_rows >= chunk.tokens.size() ? 1 : 0;
      one.state = t + 1 == chunk.tokens.size() ? chunk.state : std::span<float>();
      if (chunk.visible.data != nullptr) {
        one.visible = chunk.visible.slice(t, t + 1);
      }
      if (chunk.stream.out.rows > 0) {
        one.stream.out = chunk.stream.out.slice(t, t + 1);
      }
      if (chunk.input.states.rows > 0) {
        one.input.states = chunk.input.states.slice(t, t + 1);
      }
      const std::size_t end = row + one.logit_rows;
      run_together(std::span(&one, 1), rows.empty() ? rows : rows.subspan(row, one.logit_rows),
                   logits.data != nullptr ? logits.slice(row, end) : logits,
                   tokens.empty() ? tokens : tokens.subspan(row, one.logit_rows), stream);
      row = end;
    }
  }
}

void Prefill::run(std::span<const PromptChunk> chunks, std::span<const RowChoice> rows,
                  ops::Matrix<float> logits, std::span<std::int32_t> tokens,
                  const winnow::cuda::Stream& stream) {
  // A layer with shared entries needs them as they were at each token.
  if (model_.spec().shares_entries() &&
      !std::ranges::all_of(chunks, [&](const auto& chunk) { return takes_at_once(chunk); })) {
    run_by_token(chunks, rows, logits, tokens, stream);
  } else {
    run_together(chunks, rows, logits, tokens, stream);
  }
}

void Prefill::run_together(std::span<const PromptChunk> chunks, std::span<const RowChoice> rows,
                           ops::Matrix<float> logits, std::span<std::int32_t> tokens,
                           const winnow::cuda::Stream& stream) {
  std::size_t count = 0;
  int longest = 0;
  for (const PromptChunk& chunk : chunks) {
    count += chunk.tokens.size();
    longest = std::max(longest, size_of(chunk));
  }
  const bool adapts = std::ranges::any_of(
      chunks, [](const PromptChunk& chunk) { return chunk.adapter != nullptr; });
  reserve_handed(chunks, count);
  LinearPath& linear = paths_.of(static_cast<int>(count), adapts, handed_.wants_end());
  last_path_ = linear.name();
  reserve(linear, count, longest);
  const bool grows = count > most_tokens_ || longest > longest_chunk_;
  if (const auto* ranks = model_.ranks(); ranks != nullptr && grows) {
    ranks->meet();  // all ranks have made room
    most_tokens_ = std::max(most_tokens_, count);
    longest_chunk_ = std::max(longest_chunk_, longest);
  }
  const std::size_t wanted = upload(chunks, stream.get());
  if (adapts) {
    put_adapters(chunks, stream.get());
  }
  linear.adapt(adapts ? adapted_.from(0) : ops::cuda::LowRankRows{});
  if (model_.spec().draft_head) {
    upload_states(linear, chunks, count, stream.get());
  }
  const ops::cuda::SkinnyInput last =
      run_layers(linear, chunks, static_cast<int>(count), static_cast<int>(wanted), adapts, stream);
  for (const PromptChunk& chunk : chunks) {
    kvcache::cuda::advance(cache_, chunk.slot, size_of(chunk), stream.get());
  }
  cache_.report_free_pages(stream.get());
  read_states(linear.hidden(), chunks, stream.get());
  head_.read(last, wanted, rows, logits, tokens, stream);
  const auto& draft_head = model_.spec().draft_head;
  for (const PromptChunk& chunk : chunks) {
    if (!chunk.state.empty() && (!draft_head || draft_head->norms_output)) {
      model_.final_norm(chunk.state);
    }
  }
}

void Prefill::reserve_handed(std::span<const PromptChunk> chunks, std::size_t rows) {
  const auto wants = std::ranges::find_if(
      chunks, [](const PromptChunk& chunk) { return chunk.stream.out.rows > 0; });
  handed_.want(wants != chunks.end() ? wants->stream.after : std::span<const int>(),
               static_cast<int>(rows));
}

void Prefill::upload_states(LinearPath& linear, std::span<const PromptChunk> chunks,
                            std::size_t rows, cudaStream_t stream) {
  const bool own = chunks.front().input.own;
  const auto width =
      static_cast<std::size_t>(own ? model_.hidden() : model_.spec().draft_head->inputs());
  states_.ensure(rows * width);
  float* next = states_.data();
  for (const PromptChunk& chunk : chunks) {
    const ops::Matrix<const float>& states = chunk.input.states;
    require(chunk.input.own == own && states.rows == chunk.tokens.size() && states.cols == width,
            "a head that drafts got no states of the model for which it drafts");
    winnow::cuda::check(
        cudaMemcpy2DAsync(next, width * sizeof(float), states.data, states.stride * sizeof(float),
                          width * sizeof(float), states.rows, cudaMemcpyHostToDevice, stream),
        "copy a head's states to the device");
    next += states.rows * width;
  }
  linear.take_states(states_.data(), own);
}

void Prefill::put_adapters(std::span<const PromptChunk> chunks, cudaStream_t stream) {
  std::vector<const DeviceLora*> all;
  std::vector<const DeviceLora*> wanted;
  int rank = 0;
  for (const PromptChunk& chunk : chunks) {
    all.insert(all.end(), chunk.tokens.size(), chunk.adapter);
    wanted.insert(wanted.end(), chunk.logit_rows, chunk.adapter);
    rank = std::max(rank, chunk.adapter != nullptr ? chunk.adapter->rank() : 0);
  }
  all.insert(all.end(), wanted.begin(), wanted.end());
  adapted_.reserve(all.size(), rank);
  adapted_.put(all, stream);
}

void Prefill::read_states(const float* hidden, std::span<const PromptChunk> chunks,
                          cudaStream_t stream) const {
  std::size_t rows = 0;
  int first = 0;
  for (const PromptChunk& chunk : chunks) {
    handed_.read(first, chunk.stream, stream);
    first += size_of(chunk);
    rows += chunk.logit_rows;
    if (!chunk.state.empty()) {
      winnow::cuda::check(
          cudaMemcpyAsync(chunk.state.data(), hidden + (rows - 1) * chunk.state.size(),
                          chunk.state.size_bytes(), cudaMemcpyDeviceToHost, stream),
          "read a prompt's state");
    }
  }
}

// Returns the number of rows whose logits are wanted.
std::size_t Prefill::upload(std::span<const PromptChunk> chunks, cudaStream_t stream) {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> positions;
  std::vector<std::int32_t> wanted;
  std::vector<std::int32_t> slots;
  std::vector<std::int32_t> firsts;
  for (const PromptChunk& chunk : chunks) {
    slots.push_back(chunk.slot);
    firsts.push_back(static_cast<std::int32_t>(tokens.size()));
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
  firsts.push_back(static_cast<std::int32_t>(tokens.size()));
  slots.insert(slots.end(), firsts.begin(), firsts.end());
  sequences_.ensure(slots.size());
  copy_to(sequences_, slots, stream);
  winnow::cuda::check(cudaStreamSynchronize(stream), "copy a step's tokens to the device");
  return wanted.size();
}

ops::cuda::RecurrentRows Prefill::recurrent_rows(std::span<const PromptChunk> chunks) const {
  return {.sequences = static_cast<int>(chunks.size()),
          .longest = size_of(std::ranges::max(chunks, {}, size_of)),
          .firsts = sequences_.data() + chunks.size(),
          .slots = sequences_.data(),
          .states = cache_.states().table()};
}

// Returns the head's input for the wanted rows.
ops::cuda::SkinnyInput Prefill::run_layers(LinearPath& linear, std::span<const PromptChunk> chunks,
                                           int tokens, int wanted, bool adapts,
                                           const winnow::cuda::Stream& stream) {
  source_bands_.forget();
  linear.take_tokens(tokens_.data());
  model_.compute_angles(angles_.data(), angle_stride_, positions_.data(), tokens, stream.get());
  ops::cuda::embed_rows(model_.weights().embedding.view(), tokens_.data(), tokens,
                        linear.residual(), {stream.get()}, model_.own_tokens().begin);
  const LayerMemory memory{
      .qkv = {.rounded = linear.rounds_qkv() ? qkv_.data() : nullptr, .exact = exact_qkv_.data()},
      .attended = attended_.data()};
  walk_layers(linear, model_, memory, recurrent_rows(chunks), handed_, tokens,
              /*overlap=*/true, stream.get(), [&](int layer, const kvcache::cuda::QkvRows& qkv) {
                std::size_t first = 0;
                for (const PromptChunk& chunk : chunks) {
                  attend(layer, {linear.hidden(), qkv}, chunk, first, stream);
                  first += chunk.tokens.size();
                }
              });
  const bool ends = handed_.wants_end();
  if (ends) {
    linear.finish_layer(model_.layers() - 1, attended_.data(), tokens, stream.get());
    handed_.keep_end(linear.hidden(), tokens, stream.get());
  }
  if (wanted == 0) {
    return {};  // kernels do not support 0 rows
  }
  // Only these rows need logits.
  const bf16* attended = linear.keep_rows(wanted_.data(), wanted, attended_.data(), stream.get());
  if (!ends) {
    if (adapts) {
      linear.adapt(adapted_.from(static_cast<std::size_t>(tokens)));
    }
    linear.finish_layer(model_.layers() - 1, attended, wanted, stream.get());
  }
  return linear.finish(wanted, stream.get());
}

}  // namespace winnow::model::cuda
