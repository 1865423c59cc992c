// JSON Schema (draft 2020-12) as a grammar.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "grammar/expression.h"

namespace winnow::grammar {

/// White space behind commas and colons: one space, if any, or none.
enum class JsonSpaces : std::uint8_t { allowed, none };

/// A grammar whose texts are JSON in UTF-8 that is valid under `schema`: properties in the order in
/// which the schema has them, white space nowhere but as `spaces` says.
/// An object that names properties and says nothing of others has no others, as with OpenAI, vLLM
/// and llama.cpp. Throws Error that names the keyword, and where it stands, if it is malformed or
/// cannot be held to.
RuleSet json_schema_rules(const nlohmann::ordered_json& schema,
                          JsonSpaces spaces = JsonSpaces::allowed);

/// Any JSON object, for {"type": "json_object"}.
RuleSet json_object_rules(JsonSpaces spaces = JsonSpaces::allowed);

}  // namespace winnow::grammar
