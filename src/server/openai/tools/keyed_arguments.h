// Arguments that are written one by one, where they are no JSON object as a whole.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "grammar/expression.h"
#include "server/openai/tool_fields.h"

namespace winnow::server {

/// An argument as it is written, of its name and schema.
using WriteArgument =
    std::function<grammar::ExpressionPtr(const std::string& key, const nlohmann::ordered_json&)>;

/// The parameters of a tool in their order, each held to its schema, those that are not required
/// at will; `between` stands between two. Throws Error that names a keyword that cannot be held to
/// where there is no object.
grammar::ExpressionPtr keyed_arguments(const Tool& tool, grammar::RuleSet& rules,
                                       std::string_view between, const WriteArgument& write);

/// A value under a parameter's schema, as JSON. It may refer to what the parameters define.
grammar::RuleSet value_rules(const Tool& tool, nlohmann::ordered_json schema);

/// Throws Error that names a keyword of `schema` that is none of those.
void refuse_others(const nlohmann::ordered_json& schema, std::span<const std::string_view> known,
                   const std::string& where);

}  // namespace winnow::server
