#include "model/cuda/prefill.h"

#include <algorithm>
#include <limits>

#include "ops/cuda/general/prefill_attention.h"
#include "ops/cuda/rope.h"

namespace winnow::model::cuda {
namespace {

// Of a cache without a window: the chunk itself is seen whole.
constexpr int kEndless = std::numeric_limits<int>::max() / 2;

// That choose pages.
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
    : model_(model), cache_(cache), head_(head), paths_(model, matrices, {.rows = kEndless}) {
  if (cache.drops()) {
    score_eviction_.emplace(cache, 1);
  } else if (cache.selects()) {
    quest_.emplace(cache, kTokensAtOnce, 1);
  }
}

void Prefill::reserve(LinearPath& linear, std::size_t tokens, int longest_chunk) {
  const auto rows = static_cast<std::size_t>(linear.padded(static_cast<int>(tokens)));
  const auto width = [rows](int cols) { return rows * static_cast<std::size_t>(cols); };
  if (!band_ || band_->stride < cache_.most_ring() + longest_chunk) {
    band_.reset();  // give the old memory back before asking for more
    band_ = std::make_unique<kvcache::cuda::Band>(cache_, longest_chunk);
  }
  if (score_eviction_) {
    score_eviction_->reserve();
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

void Prefill::run(std::span<const PromptChunk> chunks, std::span<const RowChoice> rows,
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
  LinearPath& linear = paths_.of(static_cast<int>(count), adapts);
  reserve(linear, count, longest);
  const bool grows = count > most_tokens_ || longest > longest_chunk_;
  if (const auto* ranks = model_.ranks(); ranks != nullptr && grows) {
    ranks->meet();  // all have made room
    most_tokens_ = std::max(most_tokens_, count);
    longest_chunk_ = std::max(longest_chunk_, longest);
  }
  const std::size_t wanted = upload(chunks, stream.get());
  if (adapts) {
    put_adapters(chunks, stream.get());
  }
  linear.adapt(adapts ? adapted_.from(0) : ops::cuda::LowRankRows{});
  const ops::cuda::SkinnyInput last =
      run_layers(linear, chunks, static_cast<int>(count), static_cast<int>(wanted), adapts, stream);
  for (const PromptChunk& chunk : chunks) {
    kvcache::cuda::advance(cache_, chunk.slot, size_of(chunk), stream.get());
  }
  cache_.report_free_pages(stream.get());
  read_states(linear.hidden(), chunks, stream.get());
  head_.read(last, wanted, rows, logits, tokens, stream);
  for (const PromptChunk& chunk : chunks) {
    if (!chunk.state.empty()) {
      model_.final_norm(chunk.state);
    }
  }
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
  for (const PromptChunk& chunk : chunks) {
    rows += chunk.logit_rows;
    if (!chunk.state.empty()) {
      winnow::cuda::check(
          cudaMemcpyAsync(chunk.state.data(), hidden + (rows - 1) * chunk.state.size(),
                          chunk.state.size_bytes(), cudaMemcpyDeviceToHost, stream),
          "read a prompt's state");
    }
  }
}

// Returns how many rows' logits are wanted.
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

// Returns what the head takes of the wanted rows.
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
  walk_layers(linear, model_, memory, recurrent_rows(chunks), tokens, /*overlap=*/true,
              stream.get(), [&](int layer, const kvcache::cuda::QkvRows& qkv) {
                std::size_t first = 0;
                for (const PromptChunk& chunk : chunks) {
                  attend(layer, {linear.hidden(), qkv}, chunk, first, stream);
                  first += chunk.tokens.size();
                }
              });
  if (wanted == 0) {
    return {};  // no kernel takes no rows
  }
  // The other rows are not needed after the last layer's cache has stored them.
  const bf16* attended = linear.keep_rows(wanted_.data(), wanted, attended_.data(), stream.get());
  if (adapts) {
    linear.adapt(adapted_.from(static_cast<std::size_t>(tokens)));
  }
  linear.finish_layer(model_.layers() - 1, attended, wanted, stream.get());
  return linear.finish(wanted, stream.get());
}

// The chunk's tokens, whose activations are the rows from `first` on.
void Prefill::attend(int layer, const LayerInput& input, const PromptChunk& chunk,
                     std::size_t first, const winnow::cuda::Stream& stream) {
  const kvcache::Rule& rule = cache_.rule(chunk.slot);
  const int length = cache_.length(chunk.slot);
  const bool is_last = layer + 1 == model_.layers();
  const int first_out = is_last ? size_of(chunk) - static_cast<int>(chunk.logit_rows) : 0;
  const Rows all{input,     layer, model_.cache_layer(layer), chunk.slot, length, size_of(chunk),
                 first_out, first};
  int at_once = all.tokens;
  if (score_eviction_) {
    at_once = kvcache::cuda::ScoreEvictionAttention::free_tokens(rule, length, all.tokens);
  } else if (quest_) {
    at_once = kvcache::cuda::QuestAttention::prompt_tokens(rule, length, all.tokens);
  }
  for (int first_row = 0; first_row < at_once;) {
    const int last_row = first_row + rows_within_reach(all, first_row, at_once);
    const auto seen =
        chunk.visible.data != nullptr
            ? chunk.visible.slice(static_cast<std::size_t>(first_row), chunk.visible.rows)
            : chunk.visible;
    attend_at_once(all.slice(first_row, last_row), seen, stream);
    first_row = last_row;
  }
  const Rows others = all.slice(at_once, all.tokens);
  if (others.tokens > 0 && score_eviction_) {
    score_eviction_->append_and_attend(projection_of(others), append_of(others), *band_,
                                       model_.scale(), out_of(others), stream.get());
  } else if (others.tokens > 0) {
    choose_and_attend(others, at_once, chunk.visible, stream);
  }
  for (int t = 0; chunk.visible.data != nullptr && score_eviction_ && t < all.tokens; ++t) {
    for (int head = 0; head < model_.attention(layer)->kv_heads; ++head) {
      note_visible(chunk.visible, all.in_cache, t, head, std::min(length + t, rule.budget) + 1);
    }
  }
}

// Rows from `first` on, up to `end`, that may see each other: those of one chunk of a layer's
// reach.
int Prefill::rows_within_reach(const Rows& all, int first, int end) const {
  const kvcache::CacheShape& shape = cache_.shape();
  const int reach = shape.reach_of(all.in_cache);
  return shape.chunked && reach > 0 ? std::min(end - first, reach - (all.length + first) % reach)
                                    : end - first;
}

// Tokens that choose what they read, after the `first` ones of their chunk.
void Prefill::choose_and_attend(const Rows& rows, int first, ops::Matrix<std::int32_t> visible,
                                const winnow::cuda::Stream& stream) {
  const int heads = model_.attention(rows.layer)->kv_heads;
  const auto chunk = append_of(rows);
  kvcache::cuda::append(cache_, projection_of(rows), chunk, *band_, stream.get());
  quest_->renew_bounds(chunk, stream.get());
  std::vector<std::int32_t> read(
      visible.data != nullptr ? static_cast<std::size_t>(rows.tokens * heads) : 0);
  quest_->attend(chunk, model_.scale(), out_of(rows), read, stream.get());
  for (int i = 0; i < static_cast<int>(read.size()); ++i) {
    note_visible(visible, rows.in_cache, first + i / heads, i % heads,
                 read[static_cast<std::size_t>(i)]);
  }
}

kvcache::cuda::Projection Prefill::projection_of(const Rows& rows) const {
  return model_.projection(rows.layer, rows.of(rows.input.hidden, model_.hidden()),
                           {rows.of(angles_.data(), model_.rotary_channels() / 2), angle_stride_});
}

kvcache::cuda::PrefillAppend Prefill::append_of(const Rows& rows) const {
  return {rows.in_cache,
          rows.slot,
          rows.length,
          rows.tokens,
          {rows.of(rows.input.qkv.rounded, model_.qkv_width(rows.layer)),
           rows.of(rows.input.qkv.exact, model_.qkv_width(rows.layer))},
          rows.of(queries_.data(), model_.query_width(rows.layer))};
}

bf16* Prefill::out_of(const Rows& rows) const {
  return rows.of(attended_.data(), model_.query_width(rows.layer));
}

// Tokens of which it is known beforehand what they see.
void Prefill::attend_at_once(const Rows& rows, ops::Matrix<std::int32_t> visible,
                             const winnow::cuda::Stream& stream) {
  if (model_.attention(rows.layer)->shares) {
    return attend_to_source(rows, stream);
  }
  const auto chunk = append_of(rows);
  const kvcache::cuda::Band& band =
      model_.is_source(rows.layer)
          ? source_bands_.make(cache_, rows.tokens, rows.in_cache, rows.first)
          : *band_;
  kvcache::cuda::append(cache_, projection_of(rows), chunk, band, stream.get());
  if (quest_) {
    quest_->renew_bounds(chunk, stream.get());
  }
  if (rows.first_out < rows.tokens) {
    attend_to_all(rows, chunk.queries, band, stream);
  }
  if (visible.data != nullptr) {
    const int lead = kvcache::cuda::lead_of(cache_, rows.in_cache, rows.slot, rows.length);
    const int window = window_of(rows.in_cache, rows.slot);
    const int heads = model_.attention(rows.layer)->kv_heads;
    std::vector<std::int32_t> seen(static_cast<std::size_t>(rows.tokens * heads));
    stream.synchronize();
    band.seen.read(seen);
    for (int t = 0; t < rows.tokens; ++t) {
      for (int head = 0; head < heads; ++head) {
        note_visible(visible, rows.in_cache, t, head,
                     seen[static_cast<std::size_t>(head * rows.tokens + t)] +
                         std::min(lead + t, window) + 1);
      }
    }
  }
}

// Of a layer that shares the entries of an earlier one: what the tokens saw there.
void Prefill::attend_to_source(const Rows& rows, const winnow::cuda::Stream& stream) {
  if (rows.first_out < rows.tokens) {
    const auto chunk = append_of(rows);
    const kvcache::cuda::Band& band = source_bands_.of(rows.in_cache, rows.first);
    kvcache::cuda::append(cache_, projection_of(rows), chunk, band, stream.get());
    attend_to_all(rows, chunk.queries, band, stream);
  }
}

// Of the archive what each token sees, and of the band, in which they are already.
void Prefill::attend_to_all(const Rows& rows, const bf16* queries, const kvcache::cuda::Band& band,
                            const winnow::cuda::Stream& stream) {
  const auto& view = cache_.view();
  const std::size_t row = view.row(rows.in_cache, rows.slot, 0);
  const ops::cuda::PrefillChunk chunk{
      .query = queries,
      .out = out_of(rows),
      .tokens = rows.tokens,
      .first_out = rows.first_out,
      .lead = kvcache::cuda::lead_of(cache_, rows.in_cache, rows.slot, rows.length),
      .window = window_of(rows.in_cache, rows.slot),
      .band_keys = band.keys.data(),
      .band_values = band.values.data(),
      .band_scales = band.scales.data(),
      .band_stride = band.stride,
      .band_in_16_bits = band.in_16_bits,
      .pool = view.pool,
      .archive_pages = view.archive_pages + row * view.archive_stride,
      .archive_stride = view.archive_stride,
      .archive_counts = band.seen.data(),
      .scratch = attention_scratch_.data()};
  const ops::cuda::AttentionLogits logits{.scale = model_.scale(),
                                          .soft_cap = model_.spec().attention().soft_cap,
                                          .sinks = data_or_null(model_.layer(rows.layer).sinks)};
  const AttentionSpec& attention = *model_.attention(rows.layer);
  if (cache_.has_fast_attention()) {
    ops::cuda::prefill_attention(cache_.layout(), attention.kv_heads, attention.group(),
                                 logits.scale, chunk, stream.get());
  } else {
    ops::cuda::general_prefill_attention(cache_.layout(), attention.kv_heads, attention.group(),
                                         logits, chunk, stream.get());
  }
}

// Of the band: what the cache's window is. Without one a query sees all of the chunk before it, but
// for DMC only the entry that is open at its own token.
int Prefill::window_of(int layer, int slot) const {
  const int ring = cache_.ring(layer, slot);
  return cache_.merges() ? 0 : ring > 0 ? ring - 1 : kEndless;
}

void Prefill::note_visible(ops::Matrix<std::int32_t> visible, int layer, int token, int head,
                           int entries) const {
  const int column = cache_.shape().heads_before(layer) + head;
  visible.row(static_cast<std::size_t>(token))[static_cast<std::size_t>(column)] = entries;
}

}  // namespace winnow::model::cuda
