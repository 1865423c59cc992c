// The code that SnapKV and PyramidKV share. They differ only in how much a layer holds.
#pragma once

#include <span>

#include "kvcache/eviction/eviction.h"

namespace winnow::kvcache {

constexpr int kSnapWindow = 32;     // the observation window: the prompt's last tokens
constexpr int kSnapNeighbours = 2;  // on each side: a kernel of 5

/// The whole prompt until its end, then Rule::budget of its tokens; and the whole answer.
int hold_part_of_prompt(const Rule& rule, int length);
/// Whether the query at `position` is in the observation window of a prompt over the budget.
bool is_in_snap_window(const Rule& rule, int position);
/// Keeps the observation window: entries are dropped at the end of the prompt only.
Spared spare_snap_window(const Rule& rule);
/// Attention from the window's queries, averaged over neighbours.
void pool_votes(const ScoredLayer& layer, const HeadCache& head, std::span<float> scores);

}  // namespace winnow::kvcache
