// Constructors for the rows of the field table.
#pragma once

#include <cstdint>
#include <string_view>

#include "server/openai/field_table.h"

namespace winnow::server::field_forms {

inline constexpr auto kRefused = Treatment::refused;
inline constexpr auto kIgnored = Treatment::ignored;

inline constexpr EndpointSet kText = 1;        // /v1/completions
inline constexpr EndpointSet kChat = 2;        // /v1/chat/completions
inline constexpr EndpointSet kBoth = 3;        // completions and chats
inline constexpr EndpointSet kTokenize = 4;    // /tokenize
inline constexpr EndpointSet kDetokenize = 8;  // /detokenize
inline constexpr EndpointSet kMessages = kChat | kTokenize;
inline constexpr EndpointSet kAnthropic = 16;   // /v1/messages
inline constexpr EndpointSet kResponses = 32;   // /v1/responses
inline constexpr EndpointSet kEmbeddings = 64;  // /v1/embeddings
inline constexpr EndpointSet kRerank = 128;     // /v1/rerank
inline constexpr EndpointSet kPrefill = 256;    // /v1/prefill

inline constexpr double kMostTokens = 1 << 24;
inline constexpr double kAnyInteger = 1 << 30;

constexpr FieldRule boolean(std::string_view name, EndpointSet endpoints, std::string_view fallback,
                            std::string_view note) {
  return {.name = name,
          .endpoints = endpoints,
          .kind = FieldKind::boolean,
          .fallback = fallback,
          .note = note};
}
constexpr FieldRule integer(std::string_view name, EndpointSet endpoints, double lowest,
                            double highest, std::string_view fallback, std::string_view note) {
  return {.name = name,
          .endpoints = endpoints,
          .kind = FieldKind::integer,
          .lowest = lowest,
          .highest = highest,
          .fallback = fallback,
          .note = note};
}
constexpr FieldRule number(std::string_view name, double lowest, double highest,
                           std::string_view fallback, std::string_view note) {
  return {.name = name,
          .endpoints = kBoth,
          .kind = FieldKind::number,
          .lowest = lowest,
          .highest = highest,
          .fallback = fallback,
          .note = note};
}
constexpr FieldRule number_of(std::string_view name, EndpointSet endpoints, double lowest,
                              double highest, std::string_view fallback, std::string_view note) {
  FieldRule rule = number(name, lowest, highest, fallback, note);
  rule.endpoints = endpoints;
  return rule;
}
constexpr FieldRule typed(std::string_view name, EndpointSet endpoints, std::string_view takes,
                          std::string_view fallback, std::string_view note) {
  return {.name = name, .endpoints = endpoints, .takes = takes, .fallback = fallback, .note = note};
}
constexpr FieldRule text(std::string_view name, EndpointSet endpoints, std::string_view fallback,
                         std::string_view note) {
  return {.name = name,
          .endpoints = endpoints,
          .kind = FieldKind::text,
          .fallback = fallback,
          .note = note};
}
constexpr FieldRule alias(std::string_view name, EndpointSet endpoints, std::string_view alias_of) {
  return {.name = name, .endpoints = endpoints, .alias_of = alias_of};
}
constexpr FieldRule refused(std::string_view name, EndpointSet endpoints,
                            std::string_view neutral = {}, std::string_view note = {}) {
  return {.name = name,
          .endpoints = endpoints,
          .treatment = kRefused,
          .neutral = neutral,
          .note = note};
}
constexpr FieldRule ignored(std::string_view name, EndpointSet endpoints,
                            std::string_view note = {}) {
  return {.name = name, .endpoints = endpoints, .treatment = kIgnored, .note = note};
}

}  // namespace winnow::server::field_forms
