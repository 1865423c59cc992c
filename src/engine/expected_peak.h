// The memory that sequences will need together, by which admission decides on another one.
#pragma once

#include <vector>

namespace winnow::engine {

/// `count` sequences of the same size, each of which grows by one token at a time.
struct Growing {
  double bytes = 0.0;  // that each sequence holds now
  int limit = 0;       // tokens until it must end
  int count = 1;
};

/// The most bytes that `sequences` are expected to hold together at any time from now on, if none
/// joins them. A token takes `bytes_per_token`. Each sequence ends at its limit, or earlier: with
/// probability 1 / `answer` at every token (infinite: at its limit only). The sum of all final
/// sizes would be larger, because sequences do not end at the same time (Gong et al. 2025,
/// "Past-Future Scheduler for LLM Serving under SLA Guarantees").
double expected_peak(std::vector<Growing> sequences, double bytes_per_token, double answer);

}  // namespace winnow::engine
