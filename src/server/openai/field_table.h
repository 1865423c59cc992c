// Every request field that servers of this kind are known to accept, and what winnow does with
// it: the parser and docs/reference/request-fields.md are both generated from this table.
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
  refused,  // with 400, unless its value has no effect
  ignored,  // has no effect: accepted, and named in the log and in X-Winnow-Ignored
};

enum class FieldKind : std::uint8_t { text, boolean, integer, number, structured };

struct FieldRule {
  std::string_view name;
  EndpointSet endpoints = 0;
  Treatment treatment = Treatment::honoured;
  FieldKind kind = FieldKind::structured;  // here: a type from field_types.cc
  double lowest = 0.0;                     // of numbers
  double highest = 0.0;
  std::string_view alias_of = {};  // the field that this is another name of
  std::string_view neutral = {};   // JSON, for refused fields: has no effect, as null, false, 0,
                                   // "", [] and {} are
  std::string_view takes = {};     // structured: its possible values
  std::string_view fallback = {};  // the default
  std::string_view note = {};
};

std::span<const FieldRule> field_rules();

/// The fallback of a required field.
inline constexpr std::string_view kRequired = "required";

/// A request's body after checking: aliases are replaced by the fields' names, values have
/// valid types and ranges, and no refused field is left.
struct CheckedBody {
  nlohmann::json value;                        // without fields that are null
  std::vector<std::string> ignored;            // names of fields that have no effect here
  std::map<std::string, std::string> spelled;  // by a field's name: as the client spelled it
};

/// Throws ApiError naming the invalid field. Unknown names are ignored, but a name close to a
/// known one is refused as a spelling mistake.
CheckedBody check_fields(nlohmann::json body, Endpoint endpoint);

/// Chat fields that another API lacks mean the same there: removes their names from `ignored`,
/// and copies their values from `body` to `chat`. Throws ApiError that names a field which that
/// API's answers cannot express.
void take_chat_fields(const nlohmann::ordered_json& body, Endpoint endpoint,
                      std::vector<std::string>& ignored, nlohmann::ordered_json& chat);

/// Names the ignored fields in a header of the answer, X-Winnow-Ignored.
void add_ignored(const std::vector<std::string>& ignored, HttpResponse& response);

/// The table in Markdown, as docs/reference/request-fields.md shows it.
std::string field_page();

}  // namespace winnow::server
