// Invented tool calls of an agent that looks after servers, and their results.
#pragma once

#include <string>

#include "base/random.h"
#include "eval/journal.h"

namespace winnow::eval {

/// A tool call and its result.
struct ToolStep {
  std::string tool;
  Json arguments;
  std::string result;
};
/// The call as an agent writes it: one line of JSON.
std::string call_text(const ToolStep& step);

/// What the agent is told first: how it calls tools, and which there are.
std::string agent_instructions();

/// A file listing, a command's output, a JSON document or a log. None names a service of
/// make_errand().
ToolStep draw_tool_step(Random& random);

/// A step whose JSON result has a value that a later call needs.
struct Errand {
  std::string service = {};  // that both concern
  ToolStep step = {};
  ToolStep needs = {};       // the later call and its result
  std::string request = {};  // what a user says who wants that call
  std::string opening = {};  // of that call, until the value begins
  std::string value = {};
};

inline constexpr int kErrandKinds = 3;

/// An id, a part of a path or a number, kind `index` % kErrandKinds. Values begin and end with a
/// digit, so that tokenizers cut a call the same way with and without its opening.
Errand make_errand(int index, Random& random);

}  // namespace winnow::eval
