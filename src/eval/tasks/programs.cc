#include "eval/tasks/programs.h"

#include <fmt/format.h>

#include <vector>

#include "checkpoint/json_text.h"

namespace winnow::eval {
namespace {

// Runs the solution on each test in this process, because the sandbox forbids others. A text is
// given on standard input and compared line by line, numbers by value; arguments and results of a
// function are JSON. Tests come in two formats; pickled ones are unpickled in the sandbox.
constexpr std::string_view kLiveCodeBench = R"(
import base64, builtins, io, json, pickle, sys, zlib
from decimal import Decimal, InvalidOperation

def read_tests(text):
    if not text.strip():
        return []
    if text.lstrip().startswith("["):
        return json.loads(text)
    return json.loads(pickle.loads(zlib.decompress(base64.b64decode(text))))

HEADER = """
import bisect, collections, copy, functools, heapq, itertools, math, operator, random, re, string, sys
from bisect import *
from collections import *
from functools import *
from heapq import *
from itertools import *
from math import *
from typing import *
from builtins import *
sys.setrecursionlimit(50000)
"""

def load(name):
    space = {"__name__": name}
    exec(compile(HEADER, "header", "exec"), space)
    exec(compile(SOLUTION, "solution", "exec"), space)
    return space

def written(text):
    kept = sys.stdin, sys.stdout, builtins.open
    sys.stdin = io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8")
    sys.stdout = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    builtins.open = lambda file, *more, **named: sys.stdin if file == 0 else kept[2](file, *more, **named)
    try:
        load("__main__")
    except SystemExit as leaving:
        assert not leaving.code, "it exits with %r" % (leaving.code,)
    finally:
        output = sys.stdout
        sys.stdin, sys.stdout, builtins.open = kept
    return output.buffer.getvalue().decode()

def lines(text):
    return [line.strip() for line in text.strip().split("\n")]

def same_line(line, expected):
    if line == expected:
        return True
    try:
        return [Decimal(word) for word in line.split()] == [Decimal(word) for word in expected.split()]
    except InvalidOperation:
        return False

def agrees(text, expected):
    text, expected = lines(text), lines(expected)
    return len(text) == len(expected) and all(map(same_line, text, expected))

def returned(text):
    space = load("solution")
    owner = space["Solution"]() if "Solution" in space else None
    call = getattr(owner, FUNCTION) if owner is not None else space[FUNCTION]
    result = call(*[json.loads(line) for line in text.split("\n")])
    return json.loads(json.dumps(result))  # a tuple is a list there

for number, test in enumerate(read_tests(PUBLIC) + read_tests(PRIVATE)):
    if FUNCTION:
        passed = returned(test["input"]) == json.loads(test["output"])
    else:
        passed = agrees(written(test["input"]), test["output"])
    assert passed, "test %d" % number
)";

}  // namespace

TextCase parse_humaneval(const DataLine& line) {
  const std::string prompt = line.text({"prompt"});
  return {.prompt = prompt,
          .message = fmt::format(
              "Complete this Python function. Answer with the whole function in one code "
              "block.\n\n```python\n{}```",
              prompt),
          .facts = {{"task", "humaneval"}, {"task_id", line.text({"task_id"})}},
          .hidden = {{"prompt", prompt},
                     {"entry_point", line.text({"entry_point"})},
                     {"test", line.text({"test"})}}};
}

std::string humaneval_program(const Json& hidden, const std::string& answer) {
  const auto prompt = hidden.at("prompt").get<std::string>();
  const auto function = hidden.at("entry_point").get<std::string>();
  const std::string code = code_of(answer, Block::first);
  // A chat model repeats the function's head, a completion continues it.
  const bool whole = code.find("def " + function) != std::string::npos;
  const std::string before = whole ? prompt.substr(0, prompt.find("def " + function)) : prompt;
  return fmt::format("{}{}\n{}\ncheck({})\n", before, code, hidden.at("test").get<std::string>(),
                     function);
}

TextCase parse_livecodebench(const DataLine& line) {
  const std::string starter = line.text({"starter_code"}, "");
  const DataLine metadata = line.object_in_text({"metadata"});
  const std::string function = metadata.text({"func_name"}, "");
  const std::string how =
      starter.empty()
          ? "Read the inputs from stdin solve the problem and write the answer to stdout (do not "
            "directly test on the sample inputs). Enclose your code within delimiters as follows. "
            "Ensure that when the python program runs, it reads the inputs, runs the algorithm and "
            "writes output to STDOUT.\n```python\n# YOUR CODE HERE\n```"
          : fmt::format(
                "You will use the following starter code to write the solution to the problem and "
                "enclose your code within delimiters.\n```python\n{}\n```",
                starter);
  const std::string question = fmt::format(
      "You will be given a question (problem specification) and will generate a correct Python "
      "program that matches the specification and passes all tests.\n\nQuestion: {}\n\n{}",
      line.text({"question_content"}), how);
  TextCase result{.prompt = question + "\n\nAnswer:\n",
                  .message = question,
                  .facts = {{"task", "livecodebench"}, {"question_id", line.text({"question_id"})}},
                  .hidden = {{"function", function},
                             {"public", line.text({"public_test_cases"})},
                             {"private", line.text({"private_test_cases"})}}};
  for (const char* field : {"difficulty", "platform", "contest_date"}) {
    if (const nlohmann::json* value = line.find({field})) {
      result.facts[field] = *value;
    }
  }
  return result;
}

std::string livecodebench_program(const Json& hidden, const std::string& answer) {
  // A JSON string is also a valid Python string.
  return fmt::format(
      "PUBLIC = {}\nPRIVATE = {}\nFUNCTION = {}\nSOLUTION = {}\n{}", json_text(hidden.at("public")),
      json_text(hidden.at("private")), json_text(hidden.at("function")),
      json_text_replacing(nlohmann::json(code_of(answer, Block::last))), kLiveCodeBench);
}

Json grade_program(const SandboxedPython& python, const TextTask& task, const Question& question,
                   const std::string& text) {
  const auto verdict = python.passes(task.program(*question.hidden, text));
  return {{"correct", verdict.passed}, {"why", verdict.why}};
}

std::string code_of(const std::string& text, Block block) {
  std::vector<std::size_t> fences;
  for (std::size_t at = text.find("```"); at != std::string::npos; at = text.find("```", at + 3)) {
    fences.push_back(at);
  }
  if (fences.empty()) {
    return text;
  }
  // Fences alternately open and close; one that a limit cut off stays open.
  const std::size_t fence =
      block == Block::first ? fences.front() : fences[(fences.size() - 1) / 2 * 2];
  const std::size_t begin = text.find('\n', fence);
  if (begin == std::string::npos) {
    return "";
  }
  return text.substr(begin + 1, text.find("```", begin) - begin - 1);
}

double pass_at_k(int n, int correct, int k) {
  if (n - correct < k) {
    return 1.0;
  }
  double none = 1.0;
  for (int i = n - correct + 1; i <= n; ++i) {
    none *= 1.0 - static_cast<double>(k) / i;
  }
  return 1.0 - none;
}

}  // namespace winnow::eval
