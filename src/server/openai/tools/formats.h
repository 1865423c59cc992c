// The formats that there are, each in a file of its own.
#pragma once

#include "server/openai/tools/tool_format.h"

namespace winnow::server {

const ToolFormat& hermes_format();
const ToolFormat& llama_json_format();

}  // namespace winnow::server
