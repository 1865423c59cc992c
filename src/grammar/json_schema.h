// Compiles JSON Schema (draft 2020-12) to a grammar.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "grammar/expression.h"

namespace winnow::grammar {

/// White space after commas and colons: an optional space, or none.
enum class JsonSpaces : std::uint8_t { allowed, none };

/// A grammar for JSON texts in UTF-8 that are valid under `schema`. Properties come in the order of
/// the schema; the only white space is that of `spaces`.
/// An object that lists properties and has no keyword for others allows no others, as in OpenAI's
/// API, vLLM and llama.cpp. Throws Error with the name and place of a keyword if it is malformed or
/// not supported.
RuleSet json_schema_rules(const nlohmann::ordered_json& schema,
                          JsonSpaces spaces = JsonSpaces::allowed);

/// A grammar for any JSON object, for {"type": "json_object"}.
RuleSet json_object_rules(JsonSpaces spaces = JsonSpaces::allowed);

}  // namespace winnow::grammar
