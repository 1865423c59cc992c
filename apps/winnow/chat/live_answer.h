// An answer as it comes, with what its cache holds.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "winnow/llm.h"

namespace winnow::cli {

/// Prints the answer to a prompt as it comes; below it, on a terminal, a bar of the cache against
/// a dense one. A Ctrl-C ends the answer.
Generation answer_live(Llm& llm, std::span<const std::int32_t> prompt,
                       const GenerateOptions& options);

/// "[cache ███       1.5 MiB, 12.3 MiB when dense (8.2x) ... tokens/s]", and whether all tokens are
/// still in the window of DMS, where nothing is dropped yet (-1: there is none).
std::string answer_summary(const Generation& generation, int window);

}  // namespace winnow::cli
