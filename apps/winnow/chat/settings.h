// Settings of a chat that can be changed while it runs.
#pragma once

#include <string>
#include <string_view>

#include "winnow/llm.h"

namespace winnow::cli {

/// "temperature 0.7": changes the setting named by the first word. Error, without any change, if
/// the setting or the value is invalid.
void change_setting(GenerateOptions& options, std::string_view assignment);

/// All settings, one per line.
std::string list_settings(const GenerateOptions& options);

}  // namespace winnow::cli
