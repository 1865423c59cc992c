// Arguments that are written one by one between tags: <parameter=KEY>, a line with the value,
// </parameter>.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "grammar/expression.h"
#include "server/openai/tool_fields.h"

namespace winnow::server {

inline constexpr std::string_view kParameterEnd = "</parameter>";

/// The parameters of a tool in their order, each held to its schema. Throws Error that names a
/// keyword that cannot be held to in this format.
grammar::ExpressionPtr xml_arguments(const Tool& tool, grammar::RuleSet& rules);

/// What a value stands for: a text where the tool's parameter `key` is a string, else JSON (or a
/// text that is none).
nlohmann::ordered_json xml_value(const Tool* tool, const std::string& key, const std::string& text);

}  // namespace winnow::server
