// Prints an answer as it is generated, and the size of its cache.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "winnow/llm.h"

namespace winnow::cli {

/// Prints the answer to a prompt as it is generated; below it, on a terminal, a bar that compares
/// the cache with a dense one. Ctrl-C ends the answer.
Generation answer_live(Llm& llm, std::span<const std::int32_t> prompt,
                       const GenerateOptions& options);

/// "[cache ███       1.5 MiB, 12.3 MiB when dense (8.2x) ... tokens/s]", and whether all tokens are
/// still in the window of DMS, where nothing is evicted yet (-1: there is no window).
std::string answer_summary(const Generation& generation, int window);

}  // namespace winnow::cli
