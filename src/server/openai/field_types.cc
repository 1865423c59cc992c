#include "server/openai/field_types.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "checkpoint/json_text.h"

namespace winnow::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr EndpointSet kEverywhere = 511;

constexpr EndpointSet at(Endpoint endpoint) {
  return static_cast<EndpointSet>(endpoint);
}

// For fields that have several types, or arrays or objects.
struct StructuredType {
  std::string_view name;
  EndpointSet endpoints;
  std::string_view schema;
};

constexpr std::string_view kObjectType = R"({"type": ["object", "null"]})";
constexpr std::string_view kTextsType =
    R"({"type": ["array", "null"], "items": {"type": "string"}})";
constexpr std::string_view kTextOrTextsType =
    R"({"type": ["string", "array", "null"], "items": {"type": "string"}})";
constexpr std::string_view kTokensType =
    R"({"type": ["array", "null"], "items": {"type": "integer", "minimum": 0}})";
constexpr std::string_view kObjectsType =
    R"({"type": ["array", "null"], "items": {"type": "object"}})";
constexpr std::string_view kPromptsType = R"({"type": ["string", "array", "null"], "items": {
    "type": ["string", "integer", "array"], "minimum": 0, "items": {"type": "integer", "minimum": 0}}})";
constexpr std::string_view kSchemaType = R"({"type": ["object", "string", "boolean", "null"]})";
constexpr std::string_view kFormatType = R"({"type": ["object", "null"], "properties": {
    "type": {"type": "string"}, "schema": {"type": ["object", "boolean"]}}})";

// Types for one API come before those for all.
constexpr std::array kStructuredTypes{
    StructuredType{"documents", at(Endpoint::rerank), R"({"type": ["array", "null"], "items": {
        "type": ["string", "object"], "properties": {"text": {"type": "string"}}}})"},
    StructuredType{"input", at(Endpoint::embeddings), kPromptsType},
    StructuredType{"input", at(Endpoint::responses),
                   R"({"type": ["string", "array", "null"], "items": {
        "type": "object", "properties": {
            "type": {"type": "string"}, "role": {"type": "string"}, "name": {"type": "string"},
            "content": {"type": ["string", "array", "null"]}, "call_id": {"type": "string"},
            "arguments": {"type": "string"}, "output": {"type": ["string", "array"]},
            "summary": {"type": ["array", "null"]}}}})"},
    StructuredType{"logprobs", at(Endpoint::completions),
                   R"({"type": ["integer", "null"], "minimum": 0, "maximum": 20})"},
    StructuredType{"logprobs", at(Endpoint::chat), R"({"type": ["boolean", "null"]})"},
    StructuredType{"messages", at(Endpoint::messages), R"({"type": ["array", "null"], "items": {
        "type": "object", "properties": {
            "role": {"type": "string"}, "content": {"type": ["string", "array"],
                                                    "items": {"type": "object"}}}}})"},
    StructuredType{"tool_choice", at(Endpoint::messages),
                   R"({"type": ["object", "null"], "properties": {
        "type": {"type": "string"}, "name": {"type": "string"},
        "disable_parallel_tool_use": {"type": ["boolean", "null"]}}})"},
    StructuredType{"tool_choice", at(Endpoint::responses), R"({"type": ["string", "object", "null"],
        "properties": {"type": {"type": "string"}, "name": {"type": "string"}}})"},
    StructuredType{"tools", at(Endpoint::messages), R"({"type": ["array", "null"], "items": {
        "type": "object", "properties": {
            "type": {"type": ["string", "null"]}, "name": {"type": "string"},
            "description": {"type": ["string", "null"]},
            "input_schema": {"type": ["object", "null"]},
            "strict": {"type": ["boolean", "null"]}}}})"},
    StructuredType{"tools", at(Endpoint::responses), R"({"type": ["array", "null"], "items": {
        "type": "object", "properties": {
            "type": {"type": "string"}, "name": {"type": "string"},
            "description": {"type": ["string", "null"]},
            "parameters": {"type": ["object", "null"]},
            "strict": {"type": ["boolean", "null"]}}}})"},
    StructuredType{"allowed_token_ids", kEverywhere, kTokensType},
    StructuredType{"bad_words", kEverywhere, kTextsType},
    StructuredType{"chat_template_kwargs", kEverywhere, kObjectType},
    StructuredType{"documents", kEverywhere, kObjectsType},
    StructuredType{"dry_sequence_breakers", kEverywhere, kTextsType},
    StructuredType{"guided_choice", kEverywhere, kTextsType},
    StructuredType{"guided_json", kEverywhere, kSchemaType},
    StructuredType{"include", kEverywhere, kTextsType},
    StructuredType{"logit_bias", kEverywhere,
                   R"({"type": ["object", "array", "null"], "items": {"type": "array"}})"},
    StructuredType{"messages", kEverywhere, R"({"type": ["array", "null"], "items": {
        "type": "object", "properties": {
            "role": {"type": ["string", "null"]}, "name": {"type": ["string", "null"]},
            "content": {"type": ["string", "array", "null"],
                        "items": {"type": ["string", "object"]}},
            "tool_calls": {"type": ["array", "null"], "items": {"type": "object"}},
            "tool_call_id": {"type": ["string", "null"]},
            "reasoning_content": {"type": ["string", "null"]},
            "reasoning": {"type": ["string", "null"]},
            "token_ids": {"type": ["array", "null"],
                          "items": {"type": "integer", "minimum": 0}}}}})"},
    StructuredType{"metadata", kEverywhere, kObjectType},
    StructuredType{"output_config", kEverywhere, R"({"type": ["object", "null"], "properties": {
        "format": {"type": ["object", "null"], "properties": {
            "type": {"type": "string"}, "schema": {"type": ["object", "boolean"]}}},
        "effort": {"type": ["string", "null"]}}})"},
    StructuredType{"output_format", kEverywhere, kFormatType},
    StructuredType{"prompt", kEverywhere, kPromptsType},
    StructuredType{"reasoning", kEverywhere, R"({"type": ["object", "null"], "properties": {
        "effort": {"type": ["string", "null"]}, "summary": {"type": ["string", "null"]}}})"},
    StructuredType{"response_format", kEverywhere, R"({"type": ["object", "null"], "properties": {
        "type": {"type": ["string", "null"]},
        "schema": {"type": ["object", "string", "boolean", "null"]},
        "grammar": {"type": ["string", "null"]},
        "json_schema": {"type": ["object", "null"], "properties": {
            "name": {"type": ["string", "null"]}, "description": {"type": ["string", "null"]},
            "schema": {"type": ["object", "string", "boolean", "null"]},
            "strict": {"type": ["boolean", "null"]}}}}})"},
    StructuredType{"seed", kEverywhere, R"({"type": ["integer", "null"]})"},
    StructuredType{"stop", kEverywhere, kTextOrTextsType},
    StructuredType{"stop_sequences", kEverywhere, kTextsType},
    StructuredType{"stop_token_ids", kEverywhere, kTokensType},
    StructuredType{"stream_options", kEverywhere, R"({"type": ["object", "null"], "properties": {
        "include_usage": {"type": ["boolean", "null"]},
        "continuous_usage_stats": {"type": ["boolean", "null"]},
        "include_obfuscation": {"type": ["boolean", "null"]}}})"},
    StructuredType{"structured_outputs", kEverywhere,
                   R"({"type": ["object", "null"], "properties": {
        "json": {"type": ["object", "string", "boolean", "null"]},
        "regex": {"type": ["string", "null"]},
        "choice": {"type": ["array", "null"], "items": {"type": "string"}},
        "grammar": {"type": ["string", "null"]},
        "json_object": {"type": ["boolean", "null"]},
        "disable_any_whitespace": {"type": ["boolean", "null"]}}})"},
    StructuredType{"suffix", kEverywhere, R"({"type": ["string", "null"]})"},
    StructuredType{"system", kEverywhere,
                   R"({"type": ["string", "array", "null"], "items": {"type": "object"}})"},
    StructuredType{"text", kEverywhere, R"({"type": ["object", "null"], "properties": {
        "format": {"type": ["object", "null"], "properties": {
            "type": {"type": ["string", "null"]}, "name": {"type": ["string", "null"]},
            "description": {"type": ["string", "null"]},
            "schema": {"type": ["object", "string", "boolean", "null"]},
            "strict": {"type": ["boolean", "null"]}}},
        "verbosity": {"type": ["string", "null"]}}})"},
    StructuredType{"thinking", kEverywhere, R"({"type": ["object", "null"], "properties": {
        "type": {"type": "string"},
        "budget_tokens": {"type": ["integer", "null"], "minimum": 0, "maximum": 16777216}}})"},
    StructuredType{"tokens", kEverywhere, kTokensType},
    StructuredType{"tool_choice", kEverywhere,
                   R"({"type": ["string", "object", "null"], "properties": {
        "type": {"type": ["string", "null"]},
        "function": {"type": ["object", "null"],
                     "properties": {"name": {"type": ["string", "null"]}}}}})"},
    StructuredType{"tools", kEverywhere, R"({"type": ["array", "null"], "items": {
        "type": "object", "properties": {
            "type": {"type": ["string", "null"]},
            "function": {"type": ["object", "null"], "properties": {
                "name": {"type": ["string", "null"]}, "description": {"type": ["string", "null"]},
                "parameters": {"type": ["object", "null"]},
                "strict": {"type": ["boolean", "null"]}}}}}})"},
    StructuredType{"winnow_votes", kEverywhere, R"({"type": ["object", "null"], "properties": {
        "chains": {"type": ["integer", "null"], "minimum": 1, "maximum": 128},
        "by": {"type": ["string", "null"]}}})"},
};

Json structured_schema(const FieldRule& rule, Endpoint endpoint) {
  const auto* const found = std::ranges::find_if(kStructuredTypes, [&](const StructuredType& type) {
    return type.name == rule.name && (type.endpoints & at(endpoint)) != 0;
  });
  return found == kStructuredTypes.end() ? Json::object() : json_from<Json>(found->schema);
}

}  // namespace

Json field_schema(const FieldRule& rule, Endpoint endpoint) {
  switch (rule.kind) {
    case FieldKind::text:
      return {{"type", {"string", "null"}}};
    case FieldKind::boolean:
      return {{"type", {"boolean", "null"}}};
    case FieldKind::integer:
      return {{"type", {"integer", "null"}},
              {"minimum", static_cast<std::int64_t>(rule.lowest)},
              {"maximum", static_cast<std::int64_t>(rule.highest)}};
    case FieldKind::number:
      return {{"type", {"number", "null"}}, {"minimum", rule.lowest}, {"maximum", rule.highest}};
    case FieldKind::structured:
      break;
  }
  return structured_schema(rule, endpoint);
}

const ValueType& field_type(const FieldRule& rule, Endpoint endpoint) {
  using Key = std::pair<const FieldRule*, Endpoint>;
  static const std::map<Key, ValueType> kRead = [] {
    std::map<Key, ValueType> types;
    for (const FieldRule& field : field_rules()) {
      for (int bit = 1; bit < kEverywhere; bit *= 2) {
        if ((field.endpoints & bit) != 0) {
          const auto of = static_cast<Endpoint>(bit);
          types.emplace(Key(&field, of), value_type(field_schema(field, of)));
        }
      }
    }
    return types;
  }();
  return kRead.at({&rule, endpoint});
}

}  // namespace winnow::server
