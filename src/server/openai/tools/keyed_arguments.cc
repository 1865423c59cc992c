#include "server/openai/tools/keyed_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/error.h"
#include "checkpoint/json_text.h"
#include "grammar/json_schema.h"

namespace winnow::server {
namespace {

using Json = nlohmann::ordered_json;
using grammar::ExpressionPtr;

constexpr std::array<std::string_view, 9> kKnownKeys{
    "type",        "properties", "required", "additionalProperties", "title",
    "description", "$defs",      "$schema",  "definitions"};

struct Argument {
  ExpressionPtr text;
  bool required = false;
};

bool is_among(const Json& names, const std::string& name) {
  return std::ranges::any_of(names, [&](const Json& other) {
    return other.is_string() && other.get_ref<const std::string&>() == name;
  });
}

// The arguments from `index` on. `between`: the separator, if an argument precedes.
ExpressionPtr from(std::size_t index, const std::vector<Argument>& arguments,
                   const std::vector<std::array<int, 2>>& rules, bool follows,
                   const ExpressionPtr& between) {
  if (index == arguments.size()) {
    return grammar::nothing();
  }
  const Argument& argument = arguments[index];
  const ExpressionPtr with =
      grammar::sequence({follows ? between : grammar::nothing(), argument.text,
                         grammar::reference(rules[index + 1][1])});
  return argument.required
             ? with
             : grammar::choice({with, grammar::reference(rules[index + 1][follows ? 1 : 0])});
}

}  // namespace

void refuse_others(const Json& schema, std::span<const std::string_view> known,
                   const std::string& where) {
  for (const auto& [key, _] : schema.items()) {
    if (std::ranges::find(known, key) == known.end()) {
      fail("{}: {} cannot be held to in the format in which this model writes calls", where, key);
    }
  }
}

grammar::RuleSet value_rules(const Tool& tool, Json schema) {
  for (const char* key : {"$defs", "definitions"}) {
    if (schema.is_object() && tool.parameters.contains(key)) {
      schema[key] = tool.parameters[key];
    }
  }
  return grammar::json_schema_rules(schema);
}

ExpressionPtr keyed_arguments(const Tool& tool, grammar::RuleSet& rules, std::string_view between,
                              const WriteArgument& write) {
  const std::string where = fmt::format("parameters of {}", tool.name);
  if (tool.parameters.is_null()) {
    return grammar::nothing();
  }
  try {
    (void)grammar::json_schema_rules(tool.parameters);  // reports malformed schemas
  } catch (const Error& error) {
    fail("{}: {}", where, error.what());
  }
  refuse_others(tool.parameters, kKnownKeys, where);
  const Json properties = tool.parameters.value("properties", Json::object());
  const Json required = tool.parameters.value("required", Json::array());
  for (const Json& name : required) {
    require(name.is_string() && properties.contains(name.get<std::string>()),
            "{}: required: {} is not described", where, json_text(name));
  }
  std::vector<Argument> arguments;
  for (const auto& [key, schema] : properties.items()) {
    try {
      arguments.push_back({write(key, schema), is_among(required, key)});
    } catch (const Error& error) {
      fail("{}: {}: {}", where, key, error.what());
    }
  }
  std::vector<std::array<int, 2>> places(arguments.size() + 1);
  for (auto& place : places) {
    place = {rules.declare("arguments"), rules.declare("more arguments")};
  }
  const ExpressionPtr separator = grammar::bytes(std::string(between));
  for (std::size_t i = 0; i <= arguments.size(); ++i) {
    for (const bool follows : {false, true}) {
      rules.bodies[static_cast<std::size_t>(places[i][follows ? 1 : 0])] =
          from(i, arguments, places, follows, separator);
    }
  }
  return grammar::reference(places[0][0]);
}

}  // namespace winnow::server
