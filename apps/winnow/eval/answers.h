// What measures that ask questions are told, and print.
#pragma once

#include <CLI/CLI.hpp>

#include "eval/questions.h"

namespace winnow::cli {

/// --temperature and --top-p, of answers.
void add_answer_sampling_flags(CLI::App& command, SamplingOptions& sampling);

/// Accuracy, the cache's measured ratio and bytes, KV reads and peak tokens.
void print_answers(const eval::AnswerSummary& summary);

}  // namespace winnow::cli
