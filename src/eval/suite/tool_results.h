// Invented tool calls of an agent that looks after servers, and their results.
#pragma once

#include <string>
#include <vector>

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
/// make_call().
ToolStep draw_tool_step(Random& random);

/// A step whose result is needed later: a JSON value, by a call, or a note, by a question.
struct Errand {
  std::string subject = {};  // the service, or the kind of note; one of each can be asked for
  ToolStep step = {};
  ToolStep needs = {};                   // the later call and its result; of a note without a tool
  std::string request = {};              // what a user says who wants that call, or the question
  std::string opening = {};              // of that call, until the value begins; of a note empty
  std::vector<std::string> values = {};  // of a call one, of a note those that an answer contains
};

inline constexpr int kCallKinds = 3;

/// An id, a part of a path or a number, kind `index` % kCallKinds. Values begin and end with a
/// digit, so that tokenizers cut a call the same way with and without its opening.
Errand make_call(int index, Random& random);

/// A fact of kind `index` (make_fact) in a note.
Errand make_note(int index, Random& random);

}  // namespace winnow::eval
