#include "server/openai/tools/xml_arguments.h"

#include <fmt/format.h>

#include <array>
#include <utility>
#include <vector>

#include "base/error.h"
#include "checkpoint/json_text.h"
#include "grammar/regex_parser.h"
#include "grammar/regular.h"
#include "server/openai/tools/keyed_arguments.h"
#include "server/openai/tools/tool_format.h"

namespace winnow::server {
namespace {

using Json = nlohmann::ordered_json;
using grammar::ExpressionPtr;
using grammar::Regular;

constexpr std::array<std::string_view, 10> kKnownOfText{
    "type",    "enum",     "const",     "pattern", "minLength",
    "default", "examples", "maxLength", "title",   "description"};

// A verbatim text, up to the tag that ends it.
ExpressionPtr text_of(const Json& schema) {
  refuse_others(schema, kKnownOfText, "a string");
  if (schema.contains("const")) {
    require(schema["const"].is_string(), "const: is no string");
    return grammar::bytes(schema["const"].get<std::string>());
  }
  if (schema.contains("enum")) {
    std::vector<ExpressionPtr> choices;
    for (const Json& value : schema["enum"]) {
      require(value.is_string(), "enum: not all are strings");
      choices.push_back(grammar::bytes(value.get<std::string>()));
    }
    return grammar::choice(std::move(choices));
  }
  Regular::Ptr language = text_without(kParameterEnd)->regular;
  if (schema.contains("minLength") || schema.contains("maxLength")) {
    language = Regular::intersection(*language, *Regular::of_length(schema.value("minLength", 0),
                                                                    schema.value("maxLength", -1)));
  }
  if (schema.contains("pattern")) {
    const auto pattern =
        grammar::parse_regex(schema["pattern"].get<std::string>(), grammar::RegexMatch::anywhere);
    language = Regular::intersection(*language, *Regular::of(*pattern));
  }
  require(!language->is_empty(), "no text has this pattern and these lengths");
  return grammar::regular(language, grammar::Spelling::plain);
}

bool takes_text(const Json& schema) {
  return schema.is_object() && schema.contains("type") && schema["type"] == "string";
}

}  // namespace

ExpressionPtr xml_arguments(const Tool& tool, grammar::RuleSet& rules) {
  return keyed_arguments(tool, rules, "", [&](const std::string& key, const Json& schema) {
    return grammar::sequence({grammar::bytes(fmt::format("<parameter={}>\n", key)),
                              takes_text(schema)
                                  ? text_of(schema)
                                  : grammar::reference(rules.embed(value_rules(tool, schema))),
                              grammar::bytes(fmt::format("\n{}\n", kParameterEnd))});
  });
}

Json xml_value(const Tool* tool, const std::string& key, const std::string& text) {
  if (tool != nullptr && tool->parameters.is_object()) {
    const Json properties = tool->parameters.value("properties", Json::object());
    if (properties.contains(key) && takes_text(properties[key])) {
      return text;
    }
  }
  Json value = json_or_discarded<Json>(text);
  if (!value.is_discarded()) {
    return value;
  }
  if (text == "True" || text == "False") {  // Python's spelling
    return text == "True";
  }
  return text == "None" ? Json() : Json(text);
}

}  // namespace winnow::server
