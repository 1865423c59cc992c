#include "kvcache/attend_rows.h"

#include <algorithm>
#include <vector>

#include "base/threads.h"
#include "kvcache/quest.h"
#include "kvcache/score_eviction.h"
#include "ops/attention.h"

namespace winnow::kvcache {
namespace {

// One token of one sequence.
struct Step {
  const LayerChunk* chunk;
  std::size_t row;
};

// Page lists that Quest's rows point into.
using PageLists = std::vector<std::vector<PageId>>;

// Whether the output or the weights of the step's query are needed.
bool is_wanted(const Step& step, int layer) {
  const LayerChunk& chunk = *step.chunk;
  return step.row >= chunk.first_out || chunk.visible.data != nullptr || chunk.weights != nullptr ||
         chunk.sequence->rule(layer).drops();
}

void append_token(const Step& step, int layer) {
  SequenceCache& sequence = *step.chunk->sequence;
  const Rule rule = sequence.rule(layer);
  for (int head = 0; head < sequence.cache().shape().kv_heads_of(layer); ++head) {
    sequence.head(layer, head).append(rule, token_of(*step.chunk, step.row, head));
    note_queries(sequence, layer, head, queries_of(*step.chunk, step.row, layer, head));
  }
}

void report_visible(const Step& step, int head, int entries) {
  if (step.chunk->visible.data != nullptr) {
    step.chunk->visible.row(step.row)[static_cast<std::size_t>(head)] = entries;
  }
}

int archive_pages(const Rule& rule, const HeadCache& head) {
  return (head.archive().size() + rule.page_entries - 1) / rule.page_entries;
}

// Whether each query head chooses what it reads of what the KV head holds (Quest).
bool chooses_pages(const Rule& rule, const HeadCache& head) {
  return rule.selects_pages(head.length() - 1) && archive_pages(rule, head) > rule.pages_read();
}

// The rows of KV heads whose queries see everything that is cached.
void plan_full_rows(const Step& step, int layer, std::span<ops::DecodeRow> rows) {
  const LayerChunk& chunk = *step.chunk;
  const SequenceCache& sequence = *chunk.sequence;
  const CacheShape& shape = sequence.cache().shape();
  const int group = shape.group_of(layer);
  const auto width = static_cast<std::size_t>(group * shape.head_dim);
  const Rule rule = sequence.rule(layer);
  float* weights = chunk.weights;
  for (int h = 0; h < shape.kv_heads_of(layer); ++h) {
    const HeadCache& head = sequence.head(layer, h);
    if (chooses_pages(rule, head)) {
      continue;
    }
    const std::size_t column = static_cast<std::size_t>(h) * width;
    rows[static_cast<std::size_t>(h)] = {chunk.queries.row(step.row).data() + column,
                                         chunk.out.row(step.row).data() + column,
                                         head.archive().span(),
                                         head.window().span(),
                                         weights,
                                         sinks_of(chunk, layer, h)};
    if (weights != nullptr) {
      weights += group * head.live_entries();
    }
    report_visible(step, h, head.live_entries());
  }
}

// Of the other KV heads: one row per query head, over the window and the pages that it chose.
void plan_quest_rows(const Step& step, int layer, std::vector<ops::DecodeRow>& rows,
                     PageLists& lists) {
  const LayerChunk& chunk = *step.chunk;
  const SequenceCache& sequence = *chunk.sequence;
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
      const std::span query(chunk.queries.row(step.row).data() + column, dim);
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
                      chunk.out.row(step.row).data() + column,
                      {head.archive().span().base, list.data(), count},
                      head.window().span(),
                      nullptr,
                      chunk.sinks != nullptr ? sinks_of(chunk, layer, h) + g : nullptr});
    }
    int visible = head.window().size();
    for (int page = 0; page < choice.pages; ++page) {
      visible += read[static_cast<std::size_t>(page)]
                     ? std::min(rule.page_entries, entries - page * rule.page_entries)
                     : 0;
    }
    report_visible(step, h, visible);
  }
}

// The rows of query heads that choose the pages that they see.
void attend_to_pages(ops::Context& context, int layer, std::span<const Step> steps) {
  std::vector<ops::DecodeRow> rows;
  PageLists lists;
  for (const Step& step : steps) {
    if (is_wanted(step, layer)) {
      plan_quest_rows(step, layer, rows, lists);
    }
  }
  if (!rows.empty()) {
    ops::AttentionShape shape = steps.front().chunk->sequence->cache().attention_shape(layer);
    shape.group = 1;
    ops::decode_attention(context, shape, rows);
  }
}

// Takes every step's token and returns the rows of heads whose queries see everything. A step is
// one thread's: what appending has brought into its caches is what the rows are planned from.
std::vector<ops::DecodeRow> append_tokens(std::span<const Step> steps, int layer) {
  const auto heads =
      static_cast<std::size_t>(steps.front().chunk->sequence->cache().shape().kv_heads_of(layer));
  std::vector<ops::DecodeRow> rows(steps.size() * heads);
  const auto take = [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t i = begin; i < end; ++i) {
      append_token(steps[i], layer);
      if (is_wanted(steps[i], layer)) {
        plan_full_rows(steps[i], layer, std::span(rows).subspan(i * heads, heads));
      }
    }
  };
  constexpr std::size_t kWorthATeam = 16;
  if (rows.size() < kWorthATeam) {
    take(0, steps.size(), 0);
  } else {
    parallel_ranges(steps.size(), take);
  }
  std::erase_if(rows, [](const ops::DecodeRow& row) { return row.query == nullptr; });
  return rows;
}

// Makes room for the attention weights that the rule evicts by.
void reserve_weights(ops::Workspace& workspace, int group, std::span<ops::DecodeRow> rows) {
  for (ops::DecodeRow& row : rows) {
    if (row.weights == nullptr) {
      const auto count = static_cast<std::size_t>(group * (row.archive.count + row.window.count));
      row.weights = workspace.take<float>(count).data();
    }
  }
}

void take_steps(ops::Context& context, int layer, std::span<const Step> steps) {
  const ops::Workspace::Scope scope(*context.workspace);
  const SequenceCache& first = *steps.front().chunk->sequence;
  const ops::AttentionShape shape = first.cache().attention_shape(layer);
  const bool evicts = first.rule(layer).drops();
  std::vector<ops::DecodeRow> rows = append_tokens(steps, layer);
  if (evicts) {
    reserve_weights(*context.workspace, shape.group, rows);
  }
  if (!rows.empty()) {
    ops::decode_attention(context, shape, rows);
  }
  if (evicts) {
    const auto heads = static_cast<std::size_t>(first.cache().shape().kv_heads_of(layer));
    for (std::size_t i = 0; i < steps.size(); ++i) {
      evict_by_score(context, *steps[i].chunk->sequence, layer,
                     std::span(rows).subspan(i * heads, heads));
    }
  }
  if (first.rule(layer).traits->selects) {
    attend_to_pages(context, layer, steps);
  }
}

}  // namespace

void attend_single_rows(ops::Context& context, int layer, std::span<const LayerChunk> chunks) {
  std::vector<Step> steps;
  for (const LayerChunk& chunk : chunks) {
    if (chunk.queries.rows == 1 && chunk.first_out == 0) {
      steps.push_back({&chunk, 0});
    }
  }
  if (steps.empty()) {
    return;
  }
  const SequenceCache& first = *steps.front().chunk->sequence;
  const auto heads = static_cast<std::size_t>(first.cache().shape().kv_heads_of(layer));
  std::vector<ops::DecodeRow> rows(steps.size() * heads);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    plan_full_rows(steps[i], layer, std::span(rows).subspan(i * heads, heads));
  }
  std::erase_if(rows, [](const ops::DecodeRow& row) { return row.query == nullptr; });
  if (!rows.empty()) {
    ops::decode_attention(context, first.cache().attention_shape(layer), rows);
  }
  if (first.rule(layer).traits->selects) {
    attend_to_pages(context, layer, steps);
  }
}

void attend_row_by_row(ops::Context& context, int layer, std::span<const LayerChunk> chunks,
                       std::span<const std::size_t> first_rows) {
  for (std::size_t i = 0;; ++i) {
    std::vector<Step> steps;
    steps.reserve(chunks.size());
    for (std::size_t c = 0; c < chunks.size(); ++c) {
      if (first_rows[c] + i < chunks[c].queries.rows) {
        steps.push_back({&chunks[c], first_rows[c] + i});
      }
    }
    if (steps.empty()) {
      return;
    }
    take_steps(context, layer, steps);
  }
}

}  // namespace winnow::kvcache
