// Arguments that are written one by one instead of as a JSON object.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "grammar/expression.h"
#include "server/openai/tool_fields.h"

namespace winnow::server {

/// The grammar of an argument, from its name and schema.
using WriteArgument =
    std::function<grammar::ExpressionPtr(const std::string& key, const nlohmann::ordered_json&)>;

/// A tool's parameters in their order, each constrained by its schema, optional ones may be left
/// out; `between` separates two. Throws Error that names a keyword that cannot be enforced
/// outside an object.
grammar::ExpressionPtr keyed_arguments(const Tool& tool, grammar::RuleSet& rules,
                                       std::string_view between, const WriteArgument& write);

/// A value under a parameter's schema, as JSON. It may refer to the parameters' definitions.
grammar::RuleSet value_rules(const Tool& tool, nlohmann::ordered_json schema);

/// Throws Error that names a keyword of `schema` that is not in `known`.
void refuse_others(const nlohmann::ordered_json& schema, std::span<const std::string_view> known,
                   const std::string& where);

}  // namespace winnow::server
