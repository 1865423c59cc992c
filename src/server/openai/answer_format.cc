#include "server/openai/answer_format.h"

#include <fmt/format.h>

#include <array>
#include <optional>
#include <utility>

#include "base/error.h"
#include "checkpoint/json.h"
#include "server/http/api_error.h"
#include "server/openai/ordered_json.h"

namespace winnow::server {
namespace {

using nlohmann::json;
using Json = nlohmann::ordered_json;
using Kind = AnswerFormat::Kind;

constexpr std::size_t kMostChoices = 4096;

// A schema may be JSON or a string that contains JSON.
Json schema_of(const Fields& fields, const char* name, const Json& ordered) {
  const json& value = *fields.find(name);
  if (value.is_object() || value.is_boolean()) {
    return ordered;
  }
  if (!value.is_string()) {
    fields.reject(name, "a JSON Schema");
  }
  const auto text = value.get<std::string>();
  try {
    const json checked = parse_json(text, fields.name_of(name));
    if (checked.is_object() || checked.is_boolean()) {
      return in_order(text, key_comparisons(checked), fields.name_of(name));
    }
  } catch (const Error& error) {
    throw ApiError(400, error.what(), fields.name_of(name), "invalid_value");
  }
  fields.reject(name, "a JSON Schema");
}

std::string pattern_of(const Fields& fields, const char* name) {
  return fields.text(name).value_or("");
}

std::vector<std::string> choices_of(const Fields& fields, const char* name) {
  std::vector<std::string> choices = fields.texts(name, kMostChoices);
  if (choices.empty()) {
    fields.reject(name, "an array of at least one string");
  }
  return choices;
}

// The format that fields with vLLM's or llama.cpp's names ask for.
std::optional<AnswerFormat> format_of(const Fields& fields, const char* name, Kind kind,
                                      const Json& ordered) {
  if (fields.find(name) == nullptr) {
    return std::nullopt;
  }
  AnswerFormat format{.kind = kind, .field = fields.name_of(name)};
  if (kind == Kind::json_schema) {
    format.schema = schema_of(fields, name, ordered);
  } else if (kind == Kind::choice) {
    format.choices = choices_of(fields, name);
  } else {
    format.pattern = pattern_of(fields, name);
  }
  return format;
}

std::optional<AnswerFormat> parse_structured_outputs(const Fields& fields, const Json& ordered) {
  const json* object = fields.object("structured_outputs");
  if (object == nullptr) {
    return std::nullopt;
  }
  const Fields inner(*object, "structured_outputs.");
  std::optional<AnswerFormat> format;
  for (const auto& [name, value] : object->items()) {
    const bool is_off = name == "json_object" && value == false;  // a schema itself may be false
    if (value.is_null() || is_off || name == "disable_any_whitespace") {
      continue;
    }
    std::optional<AnswerFormat> asked;
    if (name == "json") {
      asked = format_of(inner, "json", Kind::json_schema, ordered.at("json"));
    } else if (name == "regex") {
      asked = format_of(inner, "regex", Kind::regex, {});
    } else if (name == "choice") {
      asked = format_of(inner, "choice", Kind::choice, {});
    } else if (name == "grammar") {
      asked = format_of(inner, "grammar", Kind::grammar, {});
    } else if (name == "json_object" && value == true) {
      asked = AnswerFormat{.kind = Kind::json_object, .field = "structured_outputs.json_object"};
    } else {
      inner.reject(name, "json, regex, choice, grammar or json_object alone");
    }
    if (format) {
      throw ApiError(400, "structured_outputs asks for more than one form", "structured_outputs",
                     "invalid_value");
    }
    format = std::move(asked);
  }
  if (format && inner.boolean_or("disable_any_whitespace", false)) {
    format->spaces = grammar::JsonSpaces::none;
  }
  return format;
}

std::optional<AnswerFormat> parse_response_format(const Fields& fields, const Json& ordered) {
  const json* object = fields.object("response_format");
  if (object == nullptr) {
    return std::nullopt;
  }
  const std::string path = fields.name_of("response_format") + ".";
  const Fields inner(*object, path);
  const std::string type = inner.text("type").value_or("");
  if (type == "text") {
    return std::nullopt;
  }
  const auto schema = [&](const Fields& holder, const char* name, const Json& from) {
    if (holder.find(name) == nullptr) {
      holder.reject(name, "a JSON Schema");
    }
    return format_of(holder, name, Kind::json_schema, from.at(name));
  };
  if (type == "json" || type == "regex") {  // TGI's formats
    if (inner.find("value") == nullptr) {
      inner.reject("value", "a JSON Schema, or an expression");
    }
    return type == "json" ? schema(inner, "value", ordered)
                          : format_of(inner, "value", Kind::regex, {});
  }
  if (type == "json_object") {  // llama.cpp's may also have a schema
    return inner.find("schema") != nullptr ? schema(inner, "schema", ordered)
                                           : std::optional(AnswerFormat{.kind = Kind::json_object});
  }
  if (type == "json_schema") {
    if (inner.object("json_schema") == nullptr) {  // llama.cpp puts it next to the type
      return inner.find("schema") != nullptr ? schema(inner, "schema", ordered)
                                             : schema(inner, "json_schema", ordered);
    }
    const Fields named(*inner.object("json_schema"), path + "json_schema.");
    return schema(named, "schema", ordered.at("json_schema"));
  }
  if (type == "grammar") {
    return format_of(inner, "grammar", Kind::grammar, {});
  }
  inner.reject("type", "\"text\", \"json_object\", \"json_schema\", \"grammar\" or \"regex\"");
}

}  // namespace

AnswerFormat parse_answer_format(const Fields& fields, const Json& ordered) {
  const auto part = [&](const char* name) {
    const auto found = ordered.find(ordered.contains(name) ? name : fields.name_of(name));
    return found == ordered.end() ? Json() : *found;
  };
  const std::array<std::optional<AnswerFormat>, 6> formats{
      parse_response_format(fields, part("response_format")),
      parse_structured_outputs(fields, part("structured_outputs")),
      format_of(fields, "guided_json", Kind::json_schema, part("guided_json")),
      format_of(fields, "guided_regex", Kind::regex, {}),
      format_of(fields, "guided_choice", Kind::choice, {}),
      format_of(fields, "guided_grammar", Kind::grammar, {})};
  std::optional<AnswerFormat> asked;
  for (const auto& format : formats) {
    if (format && asked) {
      throw ApiError(
          400,
          fmt::format("{} and {} ask for two forms of one answer", asked->field, format->field),
          format->field, "invalid_value");
    }
    if (format) {
      asked = format;
    }
  }
  return asked.value_or(AnswerFormat{});
}

}  // namespace winnow::server
