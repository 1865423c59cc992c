// Output of measures that ask questions.
#pragma once

#include "eval/questions.h"

namespace winnow::cli {

/// Accuracy, the cache's measured ratio and bytes, KV reads and peak tokens.
void print_answers(const eval::AnswerSummary& summary);

}  // namespace winnow::cli
