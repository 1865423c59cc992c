// The output format that a client requests.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "grammar/json_schema.h"
#include "server/openai/json_fields.h"

namespace winnow::server {

struct AnswerFormat {
  enum class Kind : std::uint8_t { text, json_object, json_schema, regex, choice, grammar };

  Kind kind = Kind::text;
  nlohmann::ordered_json schema = {};     // json_schema: properties in their order
  std::string pattern = {};               // regex; grammar: its text
  std::vector<std::string> choices = {};  // choice
  std::string field = "response_format";  // the field that errors name
  grammar::JsonSpaces spaces = grammar::JsonSpaces::allowed;  // of JSON
};

/// Reads response_format, structured_outputs and guided_*. `ordered`: the same body with its
/// keys in their original order. Throws ApiError, also when two of the fields ask for a format.
AnswerFormat parse_answer_format(const Fields& fields, const nlohmann::ordered_json& ordered);

}  // namespace winnow::server
