#include "kvcache/attend.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "base/threads.h"
#include "kvcache/attend_rows.h"
#include "kvcache/score_eviction.h"
#include "ops/attention.h"
#include "ops/rotation.h"

namespace winnow::kvcache {
namespace {

// The number of a chunk's first rows that can be taken at once: what they see is known beforehand.
std::size_t rows_at_once(const ops::Context& context, int layer, const LayerChunk& chunk) {
  const auto rows = static_cast<int>(chunk.queries.rows);
  if (rows == 1 || context.deterministic) {
    return 0;
  }
  return static_cast<std::size_t>(chunk.sequence->rows_at_once(layer, rows));
}

HeadChunk plan_head(ops::Workspace& workspace, const LayerChunk& chunk, std::size_t index,
                    int layer, int head) {
  const auto& sequence = *chunk.sequence;
  const std::size_t rows = chunk.queries.rows;
  const auto dim = static_cast<std::size_t>(sequence.cache().shape().head_dim);
  HeadChunk result{.chunk = &chunk,
                   .index = index,
                   .rows = rows,
                   .head = head,
                   .archive_counts = workspace.take<std::int32_t>(rows)};
  const int window = sequence.rule(layer).window;
  if (window >= 0) {
    result.lead = sequence.rule(layer).window_before(sequence.head(layer, head).length());
    const std::size_t entries = static_cast<std::size_t>(result.lead) + rows;
    const std::size_t panels = (entries + ops::kPageEntries - 1) / ops::kPageEntries;
    result.band_keys = workspace.take<float>(panels * ops::kPageEntries * dim);
    result.band_values = workspace.take<float>(entries * dim);
  }
  return result;
}

// Column `entry` of the key panels.
void store_band_key(const HeadChunk& part, std::size_t entry, std::span<const float> key) {
  float* panel = &part.band_keys[entry / ops::kPageEntries * ops::kPageEntries * key.size()];
  for (std::size_t d = 0; d < key.size(); ++d) {
    panel[d * ops::kPageEntries + entry % ops::kPageEntries] = key[d];
  }
}

// Appends the chunk's tokens to the head; fills in the band and how much archive each query sees.
void append_head(const HeadChunk& part, int layer) {
  SequenceCache& sequence = *part.chunk->sequence;
  HeadCache& cache = sequence.head(layer, part.head);
  const Rule rule = sequence.rule(layer);
  const auto dim = static_cast<std::size_t>(sequence.cache().shape().head_dim);
  float key_memory[ops::kMostEntryChannels];
  const std::span<float> seen_key(key_memory, dim);
  if (rule.window >= 0) {
    std::ranges::fill(part.band_keys.last(ops::kPageEntries * dim), 0.0F);
  }
  for (int j = 0; j < part.lead; ++j) {
    const auto entry = static_cast<std::size_t>(j);
    cache.load_window(rule, cache.length() - part.lead + j, seen_key,
                      part.band_values.subspan(entry * dim, dim));
    store_band_key(part, entry, seen_key);
  }
  for (std::size_t t = 0; t < part.rows; ++t) {
    const Token token = token_of(*part.chunk, t, part.head);
    if (rule.window >= 0) {
      const std::size_t entry = static_cast<std::size_t>(part.lead) + t;
      cache.append(rule, token, seen_key, part.band_values.subspan(entry * dim, dim));
      store_band_key(part, entry, seen_key);
    } else {
      cache.append(rule, token);
    }
    note_queries(sequence, layer, part.head, queries_of(*part.chunk, t, layer, part.head));
    part.archive_counts[t] = cache.archive().size();
    if (part.chunk->visible.data != nullptr) {
      part.chunk->visible.row(t)[static_cast<std::size_t>(part.head)] = cache.live_entries();
    }
  }
}

ops::PrefillHead attention_of(const HeadChunk& part, int layer) {
  const LayerChunk& chunk = *part.chunk;
  const CacheShape& shape = chunk.sequence->cache().shape();
  const auto width = static_cast<std::size_t>(shape.group_of(layer) * shape.head_dim);
  const std::size_t column = static_cast<std::size_t>(part.head) * width;
  const std::size_t first = chunk.first_out;
  const std::size_t rows = part.rows - first;
  return {.query = {chunk.queries.row(first).data() + column, rows, width, chunk.queries.stride},
          .out = {chunk.out.row(first).data() + column, rows, width, chunk.out.stride},
          .archive = chunk.sequence->head(layer, part.head).archive().span(),
          .archive_counts = part.archive_counts.data() + first,
          .band_keys = part.band_keys.data(),
          .band_values = part.band_values.data(),
          .lead = part.lead + static_cast<int>(first),
          .window = chunk.sequence->rule(layer).window,
          .sinks = sinks_of(chunk, layer, part.head)};
}

void attend_heads(ops::Context& context, int layer, std::span<const HeadChunk> parts) {
  std::vector<ops::PrefillHead> heads;
  for (const HeadChunk& part : parts) {
    if (part.chunk->first_out < part.rows) {
      heads.push_back(attention_of(part, layer));
    }
  }
  const SequenceCache& sequence = *parts.front().chunk->sequence;
  ops::prefill_attention(context, sequence.cache().attention_shape(layer), heads);
}

// Holds no scope where a call's memory must outlive it.
using OptionalScope = std::optional<ops::Workspace::Scope>;

OptionalScope scope_unless(const SeenEntries* seen, ops::Context& context) {
  return seen == nullptr ? OptionalScope(std::in_place, *context.workspace) : std::nullopt;
}

// Takes all rows of each chunk at once.
void attend_at_once(ops::Context& context, int layer, std::span<const LayerChunk> chunks,
                    SeenEntries* seen) {
  const OptionalScope scope = scope_unless(seen, context);
  std::vector<HeadChunk> parts;
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    const int heads = chunks[c].sequence->cache().shape().kv_heads_of(layer);
    for (int head = 0; head < heads && chunks[c].queries.rows > 0; ++head) {
      parts.push_back(plan_head(*context.workspace, chunks[c], c, layer, head));
    }
  }
  if (parts.empty()) {
    return;
  }
  parallel_each(parts.size(), [&](std::size_t i, int) { append_head(parts[i], layer); });
  attend_heads(context, layer, parts);
  if (seen != nullptr) {
    *seen = std::move(parts);
  }
}

// Keys, values and queries of chunks, rotated if the cache stores rotated entries (ops/rotation.h).
class RotatedChunks {
 public:
  RotatedChunks(ops::Workspace& workspace, std::span<const LayerChunk> chunks)
      : chunks_(chunks.begin(), chunks.end()),
        head_dim_(static_cast<std::size_t>(chunks.front().sequence->cache().shape().head_dim)) {
    for (LayerChunk& chunk : chunks_) {
      for (auto* rows : {&chunk.queries, &chunk.keys, &chunk.values}) {
        if (rows->data != nullptr) {
          *rows = copy(workspace, *rows);
        }
      }
    }
    each_head([](std::span<float> x) { ops::rotate(x); });
  }

  [[nodiscard]] std::span<const LayerChunk> chunks() const { return chunks_; }

  void rotate_outputs_back() {
    rows_.clear();
    for (const LayerChunk& chunk : chunks_) {
      for (std::size_t t = chunk.first_out; t < chunk.out.rows; ++t) {
        rows_.push_back(chunk.out.row(t));
      }
    }
    each_head([](std::span<float> x) { ops::rotate_back(x); });
  }

 private:
  ops::Matrix<const float> copy(ops::Workspace& workspace, ops::Matrix<const float> from) {
    const auto memory = workspace.take<float>(from.rows * from.cols);
    for (std::size_t t = 0; t < from.rows; ++t) {
      rows_.push_back(memory.subspan(t * from.cols, from.cols));
      std::ranges::copy(from.row(t), rows_.back().begin());
    }
    return {memory.data(), from.rows, from.cols, from.cols};
  }

  template <class F>
  void each_head(const F& f) const {
    parallel_each(rows_.size(), [&](std::size_t i, int) {
      for (std::size_t first = 0; first < rows_[i].size(); first += head_dim_) {
        f(rows_[i].subspan(first, head_dim_));
      }
    });
  }

  std::vector<LayerChunk> chunks_;
  std::vector<std::span<float>> rows_;
  std::size_t head_dim_;
};

// Rows [first, last) of a chunk.
LayerChunk piece_of(const LayerChunk& chunk, std::size_t first, std::size_t last) {
  LayerChunk piece = chunk;
  for (auto* rows : {&piece.queries, &piece.keys, &piece.values}) {
    *rows = rows->slice(first, last);
  }
  piece.out = chunk.out.slice(first, last);
  if (chunk.decisions.data != nullptr) {
    piece.decisions = chunk.decisions.slice(first, last);
    piece.omegas = chunk.omegas.slice(first, last);
  }
  if (chunk.logits.data != nullptr) {
    piece.logits = chunk.logits.slice(first, last);
  }
  if (chunk.visible.data != nullptr) {
    piece.visible = chunk.visible.slice(first, last);
  }
  piece.first_out = std::min(std::max(chunk.first_out, first), last) - first;
  return piece;
}

// The next piece of each chunk after the rows taken so far: as many rows as can be taken at once;
// else one row; else, at the end of the chunk, none.
struct NextPieces {
  std::vector<LayerChunk> at_once;  // by chunk; empty if none can be taken
  std::vector<LayerChunk> tokens;
};

NextPieces next_pieces(const ops::Context& context, int layer, std::span<const LayerChunk> chunks,
                       std::span<std::size_t> taken) {
  NextPieces next;
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    const std::size_t end = chunks[c].queries.rows;
    const std::size_t many =
        taken[c] < end ? rows_at_once(context, layer, piece_of(chunks[c], taken[c], end)) : 0;
    next.at_once.push_back(piece_of(chunks[c], taken[c], taken[c] + many));
    if (taken[c] < end && many == 0) {
      next.tokens.push_back(piece_of(chunks[c], taken[c], taken[c] + 1));
    }
    taken[c] = std::min(end, taken[c] + std::max<std::size_t>(many, 1));
  }
  return next;
}

// append_and_attend() for chunks in the form in which the cache keeps entries.
void take_chunks(ops::Context& context, int layer, std::span<const LayerChunk> chunks,
                 SeenEntries* seen) {
  std::vector<std::size_t> taken(chunks.size());
  const auto ended = [&] {
    return std::ranges::equal(taken, chunks, {}, {},
                              [](const LayerChunk& chunk) { return chunk.queries.rows; });
  };
  while (!ended()) {
    const NextPieces next = next_pieces(context, layer, chunks, taken);
    attend_at_once(context, layer, next.at_once, seen);
    append_and_attend_tokens(context, layer, next.tokens);
    seen = nullptr;  // later layers share rows taken at once, or one token
  }
}

// Calls take(chunks) with the chunks in the form in which the cache keeps entries.
template <class Take>
void in_form_of_cache(ops::Context& context, std::span<const LayerChunk> chunks,
                      const SeenEntries* seen, const Take& take) {
  if (chunks.empty() || !chunks.front().sequence->cache().archive_pool().layout().rotated()) {
    return take(chunks);
  }
  const OptionalScope scope = scope_unless(seen, context);
  RotatedChunks rotated(*context.workspace, chunks);
  take(rotated.chunks());
  rotated.rotate_outputs_back();
}

void take_whole(ops::Context& context, int layer, std::span<const LayerChunk> chunks,
                SeenEntries* seen) {
  in_form_of_cache(context, chunks, seen, [&](std::span<const LayerChunk> kept) {
    take_chunks(context, layer, kept, seen);
  });
}

// Cuts each chunk where a chunk of the layer's chunked attention ends. Calls take(pieces) with the
// first piece of every chunk, then with the second pieces, and so on.
template <class Take>
void each_within_reach(int layer, std::span<const LayerChunk> chunks, const Take& take) {
  std::vector<std::size_t> taken(chunks.size());
  for (std::vector<LayerChunk> pieces{chunks.begin(), chunks.end()}; !pieces.empty();) {
    pieces.clear();
    for (std::size_t c = 0; c < chunks.size(); ++c) {
      const SequenceCache& sequence = *chunks[c].sequence;
      const Rule rule = sequence.rule(layer);
      const int left = rule.window + 1 - rule.window_before(sequence.head(layer, 0).length());
      const std::size_t first = taken[c];
      taken[c] = std::min(first + static_cast<std::size_t>(left), chunks[c].queries.rows);
      if (first < taken[c]) {
        pieces.push_back(piece_of(chunks[c], first, taken[c]));
      }
    }
    take(pieces);
  }
}

}  // namespace

void append_and_attend(ops::Context& context, int layer, std::span<const LayerChunk> chunks,
                       SeenEntries* seen) {
  if (!chunks.empty() && chunks.front().sequence->rule(layer).chunked) {
    each_within_reach(layer, chunks, [&](std::span<const LayerChunk> pieces) {
      take_whole(context, layer, pieces, nullptr);
    });
  } else {
    take_whole(context, layer, chunks, seen);
  }
}

void attend_to_seen(ops::Context& context, int layer, std::span<const LayerChunk> chunks,
                    const SeenEntries& seen) {
  in_form_of_cache(context, chunks, nullptr, [&](std::span<const LayerChunk> kept) {
    std::vector<HeadChunk> parts(seen.begin(), seen.end());
    for (HeadChunk& part : parts) {
      part.chunk = &kept[part.index];
    }
    if (!parts.empty()) {
      attend_heads(context, layer, parts);
    }
    std::vector<LayerChunk> tokens;
    std::ranges::copy_if(kept, std::back_inserter(tokens), [](const LayerChunk& chunk) {
      return chunk.queries.rows == 1 && chunk.first_out == 0;
    });
    attend_tokens(context, layer, tokens);
  });
}

bool takes_at_once(const ops::Context& context, const SequenceCache& sequence, int tokens) {
  bool at_once = !context.deterministic;
  for (int layer = 0; layer < sequence.cache().shape().layers && at_once; ++layer) {
    at_once = sequence.rows_at_once(layer, tokens) == tokens;
  }
  return at_once;
}

}  // namespace winnow::kvcache
