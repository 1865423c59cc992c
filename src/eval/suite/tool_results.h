// Invented results of an agent's tools.
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

/// A file listing, a command's output, a JSON document or a log, of invented servers. None
/// of them mentions the topics of make_fact().
ToolStep draw_tool_step(Random& random);

/// A note that says `sentence`.
ToolStep note_of(const std::string& sentence, Random& random);

}  // namespace winnow::eval
