// Tasks that are answered by a program, which must pass tests: HumanEval and LiveCodeBench.
#pragma once

#include <string>

#include "eval/python.h"
#include "eval/questions.h"
#include "eval/tasks/text_tasks.h"

namespace winnow::eval {

/// {"task_id", "prompt", "entry_point", "test"} (Chen et al. 2021).
TextCase parse_humaneval(const DataLine& line);
/// Turns the answer into a program that fails if the answer is wrong.
std::string humaneval_program(const Json& hidden, const std::string& answer);

/// {"question_id", "question_content", "starter_code", "public_test_cases", "private_test_cases",
/// "metadata", ...}, the format of Jain et al. (2024); private tests as JSON, or pickled and
/// compressed.
TextCase parse_livecodebench(const DataLine& line);
std::string livecodebench_program(const Json& hidden, const std::string& answer);

/// Correct if the task's program, built from the answer, runs to its end in `python`.
Json grade_program(const SandboxedPython& python, const TextTask& task, const Question& question,
                   const std::string& text);

/// The code in an answer: the first fenced block, or the last one, else all of it.
enum class Block { first, last };
std::string code_of(const std::string& text, Block block);

/// The probability that one of k answers is correct, from `correct` of n: 1 - C(n-c, k) / C(n, k)
/// (Chen et al. 2021).
double pass_at_k(int n, int correct, int k);

}  // namespace winnow::eval
