#include "kvcache/attend_rows.h"

#include <algorithm>
#include <vector>

#include "base/threads.h"
#include "kvcache/quest.h"
#include "kvcache/score_eviction.h"
#include "ops/attention.h"

namespace winnow::kvcache {
namespace {

// Page lists that Quest's rows point into.
using PageLists = std::vector<std::vector<PageId>>;

// Whether the rule evicts by the attention of the token's query.
bool is_observed(const LayerChunk& token, int layer) {
  return token.sequence->rule(layer).observes(token.sequence->head(layer, 0).length() - 1);
}

// Whether the attention of the token's query, which the cache holds, is needed.
bool is_wanted(const LayerChunk& token, int layer) {
  return token.first_out == 0 || token.visible.data != nullptr || token.weights != nullptr ||
         is_observed(token, layer);
}

void append_token(const LayerChunk& token, int layer) {
  SequenceCache& sequence = *token.sequence;
  const Rule rule = sequence.rule(layer);
  for (int head = 0; head < sequence.cache().shape().kv_heads_of(layer); ++head) {
    sequence.head(layer, head).append(rule, token_of(token, 0, head));
    note_queries(sequence, layer, head, queries_of(token, 0, layer, head));
  }
}

void report_visible(const LayerChunk& token, int head, int entries) {
  if (token.visible.data != nullptr) {
    token.visible.row(0)[static_cast<std::size_t>(head)] = entries;
  }
}

int archive_pages(const Rule& rule, const HeadCache& head) {
  return (head.archive().size() + rule.page_entries - 1) / rule.page_entries;
}

// Whether each query head chooses which pages of its KV head it reads (Quest).
bool chooses_pages(const Rule& rule, const HeadCache& head) {
  return rule.selects_pages(head.length() - 1) && archive_pages(rule, head) > rule.pages_read();
}

// The rows of KV heads whose queries see everything that is cached.
void plan_full_rows(const LayerChunk& token, int layer, std::span<ops::DecodeRow> rows) {
  const SequenceCache& sequence = *token.sequence;
  const CacheShape& shape = sequence.cache().shape();
  const int group = shape.group_of(layer);
  const auto width = static_cast<std::size_t>(group * shape.head_dim);
  const Rule rule = sequence.rule(layer);
  float* weights = token.weights;
  for (int h = 0; h < shape.kv_heads_of(layer); ++h) {
    const HeadCache& head = sequence.head(layer, h);
    if (chooses_pages(rule, head)) {
      continue;
    }
    const std::size_t column = static_cast<std::size_t>(h) * width;
    rows[static_cast<std::size_t>(h)] = {token.queries.row(0).data() + column,
                                         token.out.row(0).data() + column,
                                         head.archive().span(),
                                         head.window().span(),
                                         weights,
                                         sinks_of(token, layer, h)};
    if (weights != nullptr) {
      weights += group * head.live_entries();
    }
    report_visible(token, h, head.live_entries());
  }
}

// Other KV heads: one row per query head, over the window and the pages that the query chose.
void plan_quest_rows(const LayerChunk& token, int layer, std::vector<ops::DecodeRow>& rows,
                     PageLists& lists) {
  const SequenceCache& sequence = *token.sequence;
  const CacheShape& shape = sequence.cache().shape();
  const Rule rule = sequence.rule(layer);
  const auto dim = static_cast<std::size_t>(shape.head_dim);
  const int group = shape.group_of(layer);
  for (int h = 0; h < shape.kv_heads_of(layer); ++h) {
    const HeadCache& head = sequence.head(layer, h);
    if (!chooses_pages(rule, head)) {
      continue;
    }
    const int entries = head.archive().size();
    const PageChoice choice{.pages = archive_pages(rule, head),
                            .count = rule.pages_read(),
                            .with_last = rule.window < 0};
    std::vector<bool> read(static_cast<std::size_t>(choice.pages));
    for (int g = 0; g < group; ++g) {
      const std::size_t column = static_cast<std::size_t>(h * group + g) * dim;
      const std::span query(token.queries.row(0).data() + column, dim);
      std::vector<PageId>& list = lists.emplace_back();
      int count = 0;
      for (const int page : select_pages(head.bounds(), choice, query)) {
        const int first = page * rule.page_entries;
        const int last = std::min(first + rule.page_entries, entries);
        const auto& all = head.archive().pages();
        list.insert(list.end(), all.begin() + first / ops::kPageEntries,
                    all.begin() + (last + ops::kPageEntries - 1) / ops::kPageEntries);
        count += last - first;
        read[static_cast<std::size_t>(page)] = true;
      }
      rows.push_back({query.data(),
                      token.out.row(0).data() + column,
                      {head.archive().span().base, list.data(), count},
                      head.window().span(),
                      nullptr,
                      token.sinks != nullptr ? sinks_of(token, layer, h) + g : nullptr});
    }
    int visible = head.window().size();
    for (int page = 0; page < choice.pages; ++page) {
      visible += read[static_cast<std::size_t>(page)]
                     ? std::min(rule.page_entries, entries - page * rule.page_entries)
                     : 0;
    }
    report_visible(token, h, visible);
  }
}

// The rows of query heads that choose the pages that they see.
void attend_to_pages(ops::Context& context, int layer, std::span<const LayerChunk> tokens) {
  std::vector<ops::DecodeRow> rows;
  PageLists lists;
  for (const LayerChunk& token : tokens) {
    if (is_wanted(token, layer)) {
      plan_quest_rows(token, layer, rows, lists);
    }
  }
  if (!rows.empty()) {
    ops::AttentionShape shape = tokens.front().sequence->cache().attention_shape(layer);
    shape.group = 1;
    ops::decode_attention(context, shape, rows);
  }
}

// Appends every token and returns the rows [tokens, heads] of heads whose queries see everything;
// rows of other heads have no query. One thread handles all heads of a token: it plans the rows
// from the caches that it has just written.
std::vector<ops::DecodeRow> append_tokens(std::span<const LayerChunk> tokens, int layer) {
  const auto heads =
      static_cast<std::size_t>(tokens.front().sequence->cache().shape().kv_heads_of(layer));
  std::vector<ops::DecodeRow> rows(tokens.size() * heads);
  const auto take = [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t i = begin; i < end; ++i) {
      append_token(tokens[i], layer);
      if (is_wanted(tokens[i], layer)) {
        plan_full_rows(tokens[i], layer, std::span(rows).subspan(i * heads, heads));
      }
    }
  };
  constexpr std::size_t kWorthATeam = 16;
  if (rows.size() < kWorthATeam) {
    take(0, tokens.size(), 0);
  } else {
    parallel_ranges(tokens.size(), take);
  }
  return rows;
}

// Makes room for the attention weights that the rule evicts by.
void reserve_weights(ops::Workspace& workspace, int group, std::span<ops::DecodeRow> rows) {
  for (ops::DecodeRow& row : rows) {
    if (row.query != nullptr && row.weights == nullptr) {
      const auto count = static_cast<std::size_t>(group * (row.archive.count + row.window.count));
      row.weights = workspace.take<float>(count).data();
    }
  }
}

void attend_rows(ops::Context& context, const ops::AttentionShape& shape,
                 std::vector<ops::DecodeRow> rows) {
  std::erase_if(rows, [](const ops::DecodeRow& row) { return row.query == nullptr; });
  if (!rows.empty()) {
    ops::decode_attention(context, shape, rows);
  }
}

}  // namespace

void attend_tokens(ops::Context& context, int layer, std::span<const LayerChunk> tokens) {
  if (tokens.empty()) {
    return;
  }
  const SequenceCache& first = *tokens.front().sequence;
  const auto heads = static_cast<std::size_t>(first.cache().shape().kv_heads_of(layer));
  std::vector<ops::DecodeRow> rows(tokens.size() * heads);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    plan_full_rows(tokens[i], layer, std::span(rows).subspan(i * heads, heads));
  }
  attend_rows(context, first.cache().attention_shape(layer), std::move(rows));
  if (first.rule(layer).traits->selects) {
    attend_to_pages(context, layer, tokens);
  }
}

void append_and_attend_tokens(ops::Context& context, int layer,
                              std::span<const LayerChunk> tokens) {
  if (tokens.empty()) {
    return;
  }
  const ops::Workspace::Scope scope(*context.workspace);
  const SequenceCache& first = *tokens.front().sequence;
  const ops::AttentionShape shape = first.cache().attention_shape(layer);
  const auto heads = static_cast<std::size_t>(first.cache().shape().kv_heads_of(layer));
  std::vector<ops::DecodeRow> rows = append_tokens(tokens, layer);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (is_observed(tokens[i], layer)) {
      reserve_weights(*context.workspace, shape.group, std::span(rows).subspan(i * heads, heads));
    }
  }
  attend_rows(context, shape, rows);
  if (first.rule(layer).drops()) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      evict_by_score(context, *tokens[i].sequence, layer,
                     std::span(rows).subspan(i * heads, heads));
    }
  }
  if (first.rule(layer).traits->selects) {
    attend_to_pages(context, layer, tokens);
  }
}

}  // namespace winnow::kvcache
