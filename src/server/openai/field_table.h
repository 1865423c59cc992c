// Every field of a request that a server of this kind is known to take, and what winnow does with
// it: the parser and docs/serving.md are both made from this table.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/http.h"

namespace winnow::server {

using EndpointSet = std::uint16_t;  // of Endpoint

enum class Endpoint : EndpointSet {
  completions = 1,
  chat = 2,
  tokenize = 4,
  detokenize = 8,
  messages = 16,
  responses = 32,
  embeddings = 64,
  rerank = 128,
  prefill = 256,
};

enum class Treatment : std::uint8_t {
  honoured,
  refused,  // with 400, unless the value asks for nothing
  ignored,  // changes no answer: accepted, and named in the log and in X-Winnow-Ignored
};

enum class FieldKind : std::uint8_t { text, boolean, integer, number, structured };

struct FieldRule {
  std::string_view name;
  EndpointSet endpoints = 0;
  Treatment treatment = Treatment::honoured;
  FieldKind kind = FieldKind::structured;  // that is: of a type in field_types.cc
  double lowest = 0.0;                     // of numbers
  double highest = 0.0;
  std::string_view alias_of = {};  // another name of that field
  std::string_view neutral = {};   // JSON, of a refused field: asks for nothing, as null, false, 0,
                                   // "", [] and {} do
  std::string_view takes = {};     // structured: what it may be
  std::string_view fallback = {};  // what holds without it
  std::string_view note = {};
};

std::span<const FieldRule> field_rules();

/// The fallback of a field without which there is nothing to do.
inline constexpr std::string_view kRequired = "required";

/// A request's body whose fields are known: aliases have the names that they stand for, values have
/// their types and ranges, and nothing that is refused is left.
struct CheckedBody {
  nlohmann::json value;                        // without fields that are null
  std::vector<std::string> ignored;            // names of fields that have no effect here
  std::map<std::string, std::string> spelled;  // by a field's name: as the client spelled it
};

/// Throws ApiError naming the field at fault. Unknown names are ignored, but a name close to a
/// known one is refused as a spelling mistake.
CheckedBody check_fields(nlohmann::json body, Endpoint endpoint);

/// Fields of chats that another API lacks mean the same there: takes their names out of `ignored`,
/// and their values from `body` into `chat`. Throws ApiError that names one which that API's
/// answers have no place for.
void take_chat_fields(const nlohmann::ordered_json& body, Endpoint endpoint,
                      std::vector<std::string>& ignored, nlohmann::ordered_json& chat);

/// Names what was ignored in a header of the answer, X-Winnow-Ignored.
void add_ignored(const std::vector<std::string>& ignored, HttpResponse& response);

/// The table as docs/serving.md shows it, in Markdown.
std::string field_page();

}  // namespace winnow::server
