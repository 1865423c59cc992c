// All formats, each defined in its own file.
#pragma once

#include "server/openai/tools/tool_format.h"

namespace winnow::server {

const ToolFormat& hermes_format();
const ToolFormat& qwen3_coder_format();
const ToolFormat& llama_json_format();
const ToolFormat& pythonic_format();
const ToolFormat& mistral_json_format();
const ToolFormat& mistral_format();
const ToolFormat& deepseek_v3_format();
const ToolFormat& deepseek_format();
const ToolFormat& harmony_format();

}  // namespace winnow::server
