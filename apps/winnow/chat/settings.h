// The settings of a chat that can be changed while it runs.
#pragma once

#include <string>
#include <string_view>

#include "winnow/llm.h"

namespace winnow::cli {

/// "temperature 0.7": sets what the first word names. Error, and nothing is changed, when there is
/// no such setting or no such value.
void change_setting(GenerateOptions& options, std::string_view assignment);

/// All settings, a line each.
std::string list_settings(const GenerateOptions& options);

}  // namespace winnow::cli
