// A training run as a web page.
#pragma once

#include <string>

namespace winnow::cli {

/// Loss, compression ratio, and the evictions of each layer and head, as one self-contained page.
/// `metrics`: the lines of a run's metrics.jsonl.
std::string training_page(const std::string& title, const std::string& metrics, int layers);

}  // namespace winnow::cli
