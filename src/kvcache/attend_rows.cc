#include "kvcache/attend_rows.h"

#include <algorithm>
#include <vector>

#include "kvcache/feedback.h"
#include "kvcache/quest.h"
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

// Whether anybody asks what the step's query finds.
bool is_wanted(const Step& step) {
  const LayerChunk& chunk = *step.chunk;
  return step.row >= chunk.first_out || chunk.visible.data != nullptr || chunk.weights != nullptr ||
         chunk.sequence->rule().needs_attention();
}

void append_token(const Step& step, int layer) {
  SequenceCache& sequence = *step.chunk->sequence;
  for (int head = 0; head < sequence.cache().shape().kv_heads; ++head) {
    sequence.head(layer, head).append(sequence.rule(), token_of(*step.chunk, step.row, head));
  }
}

void report_visible(const Step& step, int head, int entries) {
  if (step.chunk->visible.data != nullptr) {
    step.chunk->visible.row(step.row)[static_cast<std::size_t>(head)] = entries;
  }
}

// The rows of a rule whose queries see everything that is cached, one per KV head. Weights are
// asked for where the rule wants them.
void plan_full_rows(const Step& step, int layer, ops::Workspace& workspace,
                    std::vector<ops::DecodeRow>& rows) {
  const LayerChunk& chunk = *step.chunk;
  const SequenceCache& sequence = *chunk.sequence;
  const CacheShape& shape = sequence.cache().shape();
  const auto width = static_cast<std::size_t>(shape.group * shape.head_dim);
  float* given = chunk.weights;
  for (int h = 0; h < shape.kv_heads; ++h) {
    const HeadCache& head = sequence.head(layer, h);
    const std::size_t column = static_cast<std::size_t>(h) * width;
    ops::DecodeRow row{chunk.queries.row(step.row).data() + column,
                       chunk.out.row(step.row).data() + column, head.archive().span(),
                       head.window().span(), nullptr};
    const auto weights = static_cast<std::size_t>(shape.group * head.live_entries());
    if (given != nullptr) {
      row.weights = given;
      given += weights;
    } else if (sequence.rule().needs_attention()) {
      row.weights = workspace.take<float>(weights).data();
    }
    rows.push_back(row);
    report_visible(step, h, head.live_entries());
  }
}

// Quest: one row per query head, over the pages that this head chose.
void plan_quest_rows(const Step& step, int layer, std::vector<ops::DecodeRow>& rows,
                     PageLists& lists) {
  const LayerChunk& chunk = *step.chunk;
  const SequenceCache& sequence = *chunk.sequence;
  const CacheShape& shape = sequence.cache().shape();
  const Rule& rule = sequence.rule();
  const auto dim = static_cast<std::size_t>(shape.head_dim);
  for (int h = 0; h < shape.kv_heads; ++h) {
    const HeadCache& head = sequence.head(layer, h);
    const int entries = head.archive().size();
    const int pages = (entries + rule.page_entries - 1) / rule.page_entries;
    const int wanted = (rule.budget + rule.page_entries - 1) / rule.page_entries;
    std::vector<bool> read(static_cast<std::size_t>(pages));
    for (int g = 0; g < shape.group; ++g) {
      const std::size_t column = static_cast<std::size_t>(h * shape.group + g) * dim;
      const std::span query(chunk.queries.row(step.row).data() + column, dim);
      std::vector<PageId>& list = lists.emplace_back();
      int count = 0;
      for (const int page : select_pages(head.bounds(), pages, wanted, query)) {
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
                      {},
                      nullptr});
    }
    int visible = 0;
    for (int page = 0; page < pages; ++page) {
      visible += read[static_cast<std::size_t>(page)]
                     ? std::min(rule.page_entries, entries - page * rule.page_entries)
                     : 0;
    }
    report_visible(step, h, visible);
  }
}

void take_steps(ops::Context& context, int layer, std::span<const Step> steps) {
  const ops::Workspace::Scope scope(*context.workspace);
  ops::AttentionShape shape = steps.front().chunk->sequence->cache().attention_shape();
  std::vector<ops::DecodeRow> full_rows;
  std::vector<ops::DecodeRow> quest_rows;
  PageLists lists;
  for (const Step& step : steps) {
    append_token(step, layer);
    if (!is_wanted(step)) {
      continue;
    }
    const SequenceCache& sequence = *step.chunk->sequence;
    if (sequence.rule().selects_pages(sequence.head(layer, 0).length() - 1)) {
      plan_quest_rows(step, layer, quest_rows, lists);
    } else {
      plan_full_rows(step, layer, *context.workspace, full_rows);
    }
  }
  if (!full_rows.empty()) {
    ops::decode_attention(context, shape, full_rows);
  }
  if (!quest_rows.empty()) {
    shape.group = 1;
    ops::decode_attention(context, shape, quest_rows);
  }
  std::size_t row = 0;
  for (const Step& step : steps) {
    SequenceCache& sequence = *step.chunk->sequence;
    if (sequence.rule().needs_attention()) {
      const auto heads = static_cast<std::size_t>(sequence.cache().shape().kv_heads);
      apply_feedback(sequence, layer, std::span(full_rows).subspan(row, heads));
      row += heads;
    }
  }
}

}  // namespace

void attend_row_by_row(ops::Context& context, int layer, std::span<const LayerChunk> chunks,
                       std::span<const std::size_t> first_rows) {
  for (std::size_t i = 0;; ++i) {
    std::vector<Step> steps;
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
