#include "server/openapi_types.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

namespace winnow::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr auto kText = static_cast<std::uint8_t>(Endpoint::completions);
constexpr auto kChat = static_cast<std::uint8_t>(Endpoint::chat);
constexpr auto kAnthropic = static_cast<std::uint8_t>(Endpoint::messages);
constexpr auto kEmbeddings = static_cast<std::uint8_t>(Endpoint::embeddings);
constexpr auto kRerank = static_cast<std::uint8_t>(Endpoint::rerank);
constexpr std::uint8_t kAll = 255;

struct FreeType {
  std::string_view name;
  std::uint8_t endpoints;
  std::string_view types;       // JSON
  std::string_view items = {};  // JSON: those of an array
};

constexpr std::string_view kArray = R"(["array", "null"])";
constexpr std::string_view kObject = R"(["object", "null"])";
constexpr std::string_view kTextOrArray = R"(["string", "array", "null"])";
constexpr std::string_view kTextOrObject = R"(["string", "object", "null"])";
constexpr std::string_view kTokens = R"({"type": "integer", "minimum": 0})";
constexpr std::string_view kTexts = R"({"type": "string"})";
constexpr std::string_view kObjects = R"({"type": "object"})";
constexpr std::string_view kPrompts = R"({"type": ["string", "integer", "array"]})";

// Those of one API come before those of all.
constexpr std::array kTypes{
    FreeType{"documents", kRerank, kArray, R"({"type": ["string", "object"]})"},
    FreeType{"input", kEmbeddings, kTextOrArray, kPrompts},
    FreeType{"logprobs", kText, R"(["integer", "null"])"},
    FreeType{"logprobs", kChat, R"(["boolean", "null"])"},
    FreeType{"tool_choice", kAnthropic, kObject},
    FreeType{"allowed_token_ids", kAll, kArray, kTokens},
    FreeType{"bad_words", kAll, kArray, kTexts},
    FreeType{"chat_template_kwargs", kAll, kObject},
    FreeType{"documents", kAll, kArray, kObjects},
    FreeType{"dry_sequence_breakers", kAll, kArray, kTexts},
    FreeType{"guided_choice", kAll, kArray, kTexts},
    FreeType{"guided_json", kAll, R"(["object", "string", "boolean", "null"])"},
    FreeType{"include", kAll, kArray, kTexts},
    FreeType{"input", kAll, kTextOrArray, kObjects},
    FreeType{"logit_bias", kAll, R"(["object", "array", "null"])", R"({"type": "array"})"},
    FreeType{"messages", kAll, kArray, kObjects},
    FreeType{"metadata", kAll, kObject},
    FreeType{"output_config", kAll, kObject},
    FreeType{"output_format", kAll, kObject},
    FreeType{"prompt", kAll, kTextOrArray, kPrompts},
    FreeType{"reasoning", kAll, kObject},
    FreeType{"response_format", kAll, kObject},
    FreeType{"seed", kAll, R"(["integer", "null"])"},
    FreeType{"stop", kAll, kTextOrArray, kTexts},
    FreeType{"stop_sequences", kAll, kArray, kTexts},
    FreeType{"stop_token_ids", kAll, kArray, kTokens},
    FreeType{"stream_options", kAll, kObject},
    FreeType{"structured_outputs", kAll, kObject},
    FreeType{"suffix", kAll, R"(["string", "null"])"},
    FreeType{"system", kAll, kTextOrArray, kObjects},
    FreeType{"text", kAll, kObject},
    FreeType{"thinking", kAll, kObject},
    FreeType{"tokens", kAll, kArray, kTokens},
    FreeType{"tool_choice", kAll, kTextOrObject},
    FreeType{"tools", kAll, kArray, kObjects},
    FreeType{"winnow_votes", kAll, kObject},
};

}  // namespace

Json free_type(const FieldRule& rule, std::uint8_t endpoint) {
  const auto* const found = std::ranges::find_if(kTypes, [&](const FreeType& type) {
    return type.name == rule.name && (type.endpoints & endpoint) != 0;
  });
  Json schema = Json::object();
  if (found != kTypes.end()) {
    schema["type"] = Json::parse(found->types);
    if (!found->items.empty()) {
      schema["items"] = Json::parse(found->items);
    }
  }
  return schema;
}

}  // namespace winnow::server
