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

/// A tool's parameters in their order, each constrained by its schema. Throws Error that names a
/// keyword that cannot be enforced in this format.
grammar::ExpressionPtr xml_arguments(const Tool& tool, grammar::RuleSet& rules);

/// The value of a text: a string if the tool's parameter `key` is one, else JSON (or the
/// text itself if it is not JSON).
nlohmann::ordered_json xml_value(const Tool* tool, const std::string& key, const std::string& text);

}  // namespace winnow::server
