// What a sequence's queries read and what its cache held, step by step.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/request.h"
#include "kvcache/rule.h"
#include "ops/matrix.h"

namespace winnow::engine {

/// Fills in a CacheTrace while its sequence is computed. What is computed again after a preemption
/// is counted once.
class Tracer {
 public:
  /// `heads`: layers x KV heads.
  Tracer(kvcache::RuleKind rule, int heads) : rule_(rule), heads_(heads) {}

  /// Where a step of `tokens` tokens leaves how many entries each query saw [tokens, heads]; empty
  /// when record() knows that from what the cache holds.
  ops::Matrix<std::int32_t> visible(int tokens);

  /// The tokens of the last visible(), at positions [first, first + tokens) of a sequence whose
  /// prompt has `prompt` tokens, are in the cache, which holds `live` entries now.
  void record(int first, int prompt, std::int64_t live);

  /// For a continuation of its own: what it shares has been counted here.
  [[nodiscard]] Tracer fork() const;

  [[nodiscard]] const CacheTrace& trace() const { return trace_; }

 private:
  kvcache::RuleKind rule_;
  int heads_;
  int tokens_ = 0;   // of the step under way
  int counted_ = 0;  // positions that are in the trace
  std::vector<std::int32_t> visible_;
  CacheTrace trace_;
};

}  // namespace winnow::engine
