// Inference-time hyper-scaling (DMS paper, section 4): the accuracy for a budget of KV reads or of
// peak tokens, if it is spent on longer chains of thought, or on more of them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "eval/questions.h"

namespace winnow::eval {

/// One L-W-CR configuration, averaged over questions.
struct ScalingPoint {
  int length = 0;  // L: maximum tokens of prompt and answer
  int width = 0;   // W: parallel chains
  Estimate accuracy = {};
  double compression_ratio = 1.0;  // measured
  double kv_reads = 0.0;           // per head, summed over chains and steps
  double peak_tokens = 0.0;        // per head, chains in parallel
  std::int64_t questions = 0;
  std::int64_t skipped = 0;
};

/// The questions at one maximum length: ids "<L>/<id>", with L minus the prompt as answer tokens. A
/// question whose prompt leaves none keeps one and is skipped by summarize_scaling().
std::vector<Question> at_length(std::span<const Question> questions, int length);

/// The most frequent answer among the chains, the earliest of several: indices of answers that
/// agree with it, by `stated`. For a chain that was cut off, only a stated answer counts, not its
/// last number. Empty when no chain stated one.
std::vector<std::size_t> majority(const Json& answers);

/// Whether `width` chains of a record, from chain `first` on, solve the question together: most of
/// those with an answer agree on the right one, or, for programs, one passes (pass@all).
bool solved_together(const Json& record, std::size_t first, std::size_t width);

/// The points of one length for every width, from records with `by_width` (AnswerOptions::widths).
/// Chains are split into consecutive groups of `width`, and groups are averaged.
std::vector<ScalingPoint> summarize_scaling(const Journal& journal,
                                            std::span<const Question> questions, int length,
                                            std::span<const int> widths);

/// A budget and the accuracy at it.
struct BudgetPoint {
  double budget = 0.0;
  double accuracy = 0.0;
};

/// The points that no other point at most as expensive matches, by rising budget and accuracy.
std::vector<BudgetPoint> pareto_frontier(std::vector<BudgetPoint> points);

/// Mean of a - b over the budgets that both frontiers cover, each interpolated linearly; NaN when
/// they share fewer than two budgets.
double frontier_margin(std::span<const BudgetPoint> a, std::span<const BudgetPoint> b);

}  // namespace winnow::eval
