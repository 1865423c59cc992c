// Attention of a prompt's tokens in a layer: appending to the cache and reading it.
#include <algorithm>
#include <limits>

#include "model/cuda/prefill.h"
#include "ops/cuda/general/elementwise.h"
#include "ops/cuda/general/prefill_attention.h"

namespace winnow::model::cuda {
namespace {

// The window of a cache without one: tokens see the whole chunk before them.
constexpr int kEndless = std::numeric_limits<int>::max() / 2;

}  // namespace

int Prefill::rows_at_once(int layer, int slot, int tokens) const {
  return cache_.is_full(layer) && !rounds_
             ? cache_.rule(slot).rows_at_once(cache_.length(slot), tokens)
             : tokens;
}

// Appends and attends for the chunk's tokens, whose activations start at row `first`.
void Prefill::attend(int layer, const LayerInput& input, const PromptChunk& chunk,
                     std::size_t first, const winnow::cuda::Stream& stream) {
  const kvcache::Rule& rule = cache_.rule(chunk.slot);
  const int length = cache_.length(chunk.slot);
  const bool is_last = layer + 1 == model_.layers() && !handed_.wants_end();
  const int first_out =
      is_last ? static_cast<int>(chunk.tokens.size()) - static_cast<int>(chunk.logit_rows) : 0;
  const Rows all{input,      layer,  model_.cache_layer(layer),
                 chunk.slot, length, static_cast<int>(chunk.tokens.size()),
                 first_out,  first};
  const int at_once = rows_at_once(all.in_cache, chunk.slot, all.tokens);
  bool has_room = true;
  for (int row = 0; row < at_once;) {
    const Rows piece = first_piece(all.slice(row, at_once), has_room, stream);
    const auto seen = chunk.visible.data != nullptr
                          ? chunk.visible.slice(static_cast<std::size_t>(row), chunk.visible.rows)
                          : chunk.visible;
    attend_at_once(piece, seen, stream);
    row += piece.tokens;
  }
  const Rows others = all.slice(at_once, all.tokens);
  const bool shares = model_.attention(layer)->shares.has_value();
  if (others.tokens > 0 && quest_) {
    const int together = cache_.view().ring > 0 ? 1 : others.tokens;  // windows change by token
    for (int row = at_once; row < all.tokens; row += together) {
      choose_and_attend(all.slice(row, row + together), row,
                        shares ? ops::Matrix<std::int32_t>() : chunk.visible, stream);
    }
  } else if (others.tokens > 0 && shares) {
    attend_to_rest(others, stream);
  } else if (others.tokens > 0) {
    score_eviction_->append_and_attend(projection_of(others), append_of(others), *band_,
                                       logits_of(layer), out_of(others), stream.get());
  }
  const bool notes = chunk.visible.data != nullptr && cache_.drops_each(all.in_cache);
  for (int t = 0; notes && t < all.tokens; ++t) {
    for (int head = 0; head < model_.attention(layer)->kv_heads; ++head) {
      note_visible(chunk.visible, all.in_cache, t, head, std::min(length + t, rule.budget) + 1);
    }
  }
}

// The first of these rows, at least one, that can be taken in one call. `has_room`: whether limited
// archives may have room for several more rows of the chunk. They never shrink.
Prefill::Rows Prefill::first_piece(const Rows& rows, bool& has_room,
                                   const winnow::cuda::Stream& stream) const {
  const Rows within = rows.slice(0, rows_within_reach(rows, 0, rows.tokens));
  if (cache_.limits_archive(rows.in_cache)) {
    const int count = has_room ? rows_with_room(within, stream) : 1;
    has_room = count > 1;
    return within.slice(0, count);
  }
  if (cache_.drops_in_rounds(rows.in_cache)) {
    return within.slice(
        0, rounds_->rows_together(rows.in_cache, rows.slot, rows.length, within.tokens));
  }
  return within;
}

// The number of rows from `first` on, up to `end`, that may see each other. With chunked attention
// these are the rows of one attention chunk.
int Prefill::rows_within_reach(const Rows& all, int first, int end) const {
  const kvcache::CacheShape& shape = cache_.shape();
  const int reach = shape.reach_of(all.in_cache);
  return shape.chunked && reach > 0 ? std::min(end - first, reach - (all.length + first) % reach)
                                    : end - first;
}

// The first of these rows that limited archives have room for, or one row, if there is none.
int Prefill::rows_with_room(const Rows& rows, const winnow::cuda::Stream& stream) const {
  const kvcache::Rule& rule = cache_.rule(rows.slot);
  if (rows.tokens == 1 || rule.sure_room(rows.length) >= rows.tokens) {
    return rows.tokens;
  }
  const std::vector<std::int32_t> archived = cache_.archive_counts(rows.slot, stream.get());
  const kvcache::CacheShape& shape = cache_.shape();
  const auto own =
      std::span(archived).subspan(static_cast<std::size_t>(shape.heads_before(rows.in_cache)),
                                  static_cast<std::size_t>(shape.kv_heads_of(rows.in_cache)));
  const int held = std::min(rows.length, rule.window + 1) + *std::ranges::max_element(own);
  return std::clamp(rule.sure_room(held), 1, rows.tokens);
}

// For tokens that select pages; `first`: the number of tokens before them in their chunk.
void Prefill::choose_and_attend(const Rows& rows, int first, ops::Matrix<std::int32_t> visible,
                                const winnow::cuda::Stream& stream) {
  const int heads = model_.attention(rows.layer)->kv_heads;
  const auto chunk = append_of(rows);
  kvcache::cuda::append(cache_, projection_of(rows), chunk, *band_, stream.get());
  quest_->renew_bounds(chunk, stream.get());
  std::vector<std::int32_t> read(
      visible.data != nullptr ? static_cast<std::size_t>(rows.tokens * heads) : 0);
  quest_->attend(chunk, logits_of(rows.layer), out_of(rows), read, stream.get());
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

// For tokens whose visible entries are known beforehand.
void Prefill::attend_at_once(const Rows& rows, ops::Matrix<std::int32_t> visible,
                             const winnow::cuda::Stream& stream) {
  if (model_.attention(rows.layer)->shares) {
    const bool dropped = cache_.rule(rows.slot, rows.in_cache).drops_at(rows.length + rows.tokens);
    return dropped ? attend_to_rest(rows, stream) : attend_to_source(rows, stream);
  }
  const auto chunk = append_of(rows);
  const kvcache::cuda::Band& band =
      model_.is_source(rows.layer)
          ? source_bands_.make(cache_, rows.tokens, rows.in_cache, rows.first)
          : *band_;
  kvcache::cuda::append(cache_, projection_of(rows), chunk, band, stream.get());
  if (cache_.selects(rows.in_cache)) {
    quest_->renew_bounds(chunk, stream.get());
  }
  if (rows.first_out < rows.tokens) {
    attend_to_all(rows, chunk.queries, band, stream);
  }
  if (cache_.drops_in_rounds(rows.in_cache)) {
    rounds_->evict(chunk, logits_of(rows.layer), stream.get());
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

// In a layer that shares an earlier layer's entries: attends to what the tokens saw there.
void Prefill::attend_to_source(const Rows& rows, const winnow::cuda::Stream& stream) {
  if (rows.first_out < rows.tokens) {
    const auto chunk = append_of(rows);
    const kvcache::cuda::Band& band = source_bands_.of(rows.in_cache, rows.first);
    kvcache::cuda::append(cache_, projection_of(rows), chunk, band, stream.get());
    attend_to_all(rows, chunk.queries, band, stream);
  }
}

// A token in a layer with shared entries: attends to those that the earlier layer still has.
void Prefill::attend_to_rest(const Rows& rows, const winnow::cuda::Stream& stream) {
  const auto chunk = append_of(rows);
  kvcache::cuda::project(cache_, projection_of(rows), chunk, *band_, stream.get());
  const auto width = static_cast<std::size_t>(model_.query_width(rows.layer));
  winnow::cuda::check(cudaMemsetAsync(rest_queries_.data(), 0, width * sizeof(float), stream.get()),
                      "clear a token's queries");
  ops::cuda::add_scaled(rest_queries_.data(), chunk.queries, width, 1.0F, stream.get());
  const kvcache::cuda::CacheView& view = cache_.view();
  const std::size_t row = view.row(rows.in_cache, 0, 0);
  rest_->attend({.pool = view.pool,
                 .archive_pages = view.archive_pages + row * view.archive_stride,
                 .archive_stride = view.archive_stride,
                 .archive_counts = view.archive_counts + row,
                 .lengths = view.lengths,
                 .slots = sequences_.data(),
                 .kv_heads = cache_.shape().kv_heads_of(rows.in_cache),
                 .table_heads = view.kv_heads,
                 .group = cache_.shape().group_of(rows.in_cache)},
                1, logits_of(rows.layer), rest_queries_.data(), out_of(rows), stream.get());
}

ops::cuda::AttentionLogits Prefill::logits_of(int layer) const {
  return {.scale = model_.scale(),
          .soft_cap = model_.spec().attention().soft_cap,
          .sinks = data_or_null(model_.layer(layer).sinks)};
}

// Attends to each token's visible part of the archive, and to the band, which has the new tokens.
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
      .band_in_16_bits = cache_.merges(rows.in_cache),
      .pool = view.pool,
      .archive_pages = view.archive_pages + row * view.archive_stride,
      .archive_stride = view.archive_stride,
      .archive_counts = band.seen.data(),
      .archive_most = rows.length + rows.tokens,
      .scratch = attention_scratch_.data()};
  const ops::cuda::AttentionLogits logits = logits_of(rows.layer);
  const AttentionSpec& attention = *model_.attention(rows.layer);
  if (cache_.has_fast_attention()) {
    ops::cuda::prefill_attention(cache_.layout(), attention.kv_heads, attention.group(),
                                 logits.scale, chunk, stream.get());
  } else {
    ops::cuda::general_prefill_attention(cache_.layout(), attention.kv_heads, attention.group(),
                                         logits, chunk, stream.get());
  }
}

// The window within the band is the cache's window. Without one, a query sees the whole chunk
// before it; with DMC it sees only the entry that is open at its own token.
int Prefill::window_of(int layer, int slot) const {
  const int ring = cache_.ring(layer, slot);
  return cache_.merges(layer) ? 0 : ring > 0 ? ring - 1 : kEndless;
}

void Prefill::note_visible(ops::Matrix<std::int32_t> visible, int layer, int token, int head,
                           int entries) const {
  const int column = cache_.shape().heads_before(layer) + head;
  visible.row(static_cast<std::size_t>(token))[static_cast<std::size_t>(column)] = entries;
}

}  // namespace winnow::model::cuda
