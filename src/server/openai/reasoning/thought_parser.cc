#include "server/openai/reasoning/thought_parser.h"

#include "server/openai/reasoning/harmony_parser.h"
#include "server/openai/reasoning/marked_thought_parser.h"

namespace winnow::server {

std::unique_ptr<ThoughtParser> make_thought_parser(const ThoughtFormat& format,
                                                   ThoughtStart start) {
  if (format.has_channels()) {
    return std::make_unique<HarmonyParser>(start);
  }
  return std::make_unique<MarkedThoughtParser>(format, start);
}

}  // namespace winnow::server
