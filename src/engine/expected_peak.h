// The memory that sequences will need together: what admission asks before it lets another one in.
#pragma once

#include <vector>

namespace winnow::engine {

/// Sequences alike that grow by a token at a time.
struct Growing {
  double bytes = 0.0;  // that each holds now
  int limit = 0;       // tokens until it ends at the latest
  int count = 1;
};

/// The most bytes that `sequences` are expected to hold together at any time from now on, if none
/// joins them. A token takes `bytes_per_token`. Each sequence ends at its limit, or before: with
/// the chance 1 / `answer` at every token (infinite: at its limit only). Sums of what each will
/// hold at its end are larger: the others are shorter then, or gone (Gong et al. 2025, "Past-Future
/// Scheduler for LLM Serving under SLA Guarantees").
double expected_peak(std::vector<Growing> sequences, double bytes_per_token, double answer);

}  // namespace winnow::engine
