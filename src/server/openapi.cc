#include "server/openapi.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "server/openai/field_table.h"
#include "server/openai/field_types.h"
#include "server/routes.h"
#include "winnow/version.h"

namespace winnow::server {
namespace {

using Json = nlohmann::ordered_json;

std::string_view schema_name(const RouteEntry& entry) {
  if (entry.route == Route::count_tokens) {
    return "CountTokensRequest";
  }
  switch (static_cast<Endpoint>(entry.endpoint)) {
    case Endpoint::completions:
      return "CompletionRequest";
    case Endpoint::chat:
      return "ChatCompletionRequest";
    case Endpoint::tokenize:
      return "TokenizeRequest";
    case Endpoint::detokenize:
      return "DetokenizeRequest";
    case Endpoint::messages:
      return "MessagesRequest";
    case Endpoint::responses:
      return "ResponsesRequest";
    case Endpoint::embeddings:
      return "EmbeddingsRequest";
    case Endpoint::rerank:
      return "RerankRequest";
    case Endpoint::prefill:
      return "PrefillRequest";
  }
  return "";
}

Json reference(std::string_view kind, std::string_view name) {
  return {{"$ref", fmt::format("#/components/{}/{}", kind, name)}};
}

std::string description_of(const FieldRule& rule) {
  std::string text;
  const auto add = [&text](std::string_view before, std::string_view part) {
    if (!part.empty()) {
      text += fmt::format("{}{}{}", text.empty() ? "" : "; ", before, part);
    }
  };
  add("", rule.takes);
  add("default: ", rule.fallback == kRequired ? "" : rule.fallback);
  add("", rule.note);
  return text;
}

// The schema allows null: a null field counts as absent.
Json property_of(const FieldRule& rule, Endpoint endpoint) {
  if (!rule.alias_of.empty()) {
    for (const FieldRule& target : field_rules()) {
      if (target.name == rule.alias_of &&
          (target.endpoints & static_cast<EndpointSet>(endpoint)) != 0) {
        Json property = field_schema(target, endpoint);
        property["description"] = fmt::format("another name of {}", target.name);
        return property;
      }
    }
  }
  Json property = field_schema(rule, endpoint);
  property["description"] = description_of(rule);
  return property;
}

Json request_schema(const RouteEntry& entry) {
  const EndpointSet endpoint = entry.endpoint;
  Json properties = Json::object();
  Json required = Json::array();
  for (const FieldRule& rule : field_rules()) {
    if ((rule.endpoints & endpoint) == 0 || rule.treatment != Treatment::honoured) {
      continue;
    }
    properties[std::string(rule.name)] = property_of(rule, static_cast<Endpoint>(endpoint));
    const bool answers = entry.route != Route::count_tokens || rule.name != "max_tokens";
    if (rule.fallback == kRequired && answers) {
      required.push_back(rule.name);
    }
  }
  Json schema{{"type", "object"}, {"properties", std::move(properties)}};
  if (!required.empty()) {
    schema["required"] = std::move(required);
  }
  return schema;
}

Json operation(const RouteEntry& entry, std::string_view method) {
  std::string id = fmt::format("{}{}{}{}", method, entry.path, entry.argument, entry.suffix);
  for (char& c : id) {
    c = c == '/' || c == '.' ? '_' : c;
  }
  const std::string_view summary = method == "delete" ? "Forgets a stored response" : entry.summary;
  const char* type = entry.route == Route::metrics   ? "text/plain"
                     : entry.route == Route::prefill ? "application/octet-stream"
                                                     : "application/json";
  Json made{{"operationId", std::move(id)}, {"summary", summary}};
  if (entry.open) {
    made["security"] = Json::array();
  }
  if (!entry.argument.empty()) {
    made["parameters"] = Json::array({{{"name", entry.argument},
                                       {"in", "path"},
                                       {"required", true},
                                       {"schema", {{"type", "string"}}}}});
  }
  if (entry.endpoint != 0) {
    made["requestBody"] = {
        {"required", true},
        {"content",
         {{"application/json", {{"schema", reference("schemas", schema_name(entry))}}}}}};
  }
  made["responses"] = {{"200",
                        {{"description", "The answer; of a stream, server-sent events"},
                         {"content", {{type, Json::object()}}}}},
                       {"default", reference("responses", "Error")}};
  return made;
}

Json error_response() {
  const Json text{{"type", {"string", "null"}}};
  const Json error{
      {"type", "object"},
      {"properties", {{"message", text}, {"type", text}, {"param", text}, {"code", text}}}};
  return {{"description", "What is wrong; param names the field at fault"},
          {"content",
           {{"application/json",
             {{"schema", {{"type", "object"}, {"properties", {{"error", error}}}}}}}}}};
}

}  // namespace

Json openapi_document(const ModelTask& task, bool serves_states) {
  Json paths = Json::object();
  Json schemas = Json::object();
  for (const RouteEntry& entry : routes()) {
    if (!why_closed(entry.route, task, serves_states).empty()) {
      continue;
    }
    const std::string path = entry.argument.empty() ? std::string(entry.path)
                                                    : fmt::format("{}{{{}}}{}", entry.path,
                                                                  entry.argument, entry.suffix);
    const char* method = entry.post ? "post" : "get";
    paths[path][method] = operation(entry, method);
    if (entry.erases) {
      paths[path]["delete"] = operation(entry, "delete");
    }
    if (entry.endpoint != 0) {
      schemas[std::string(schema_name(entry))] = request_schema(entry);
    }
  }
  const Json key{{"type", "http"}, {"scheme", "bearer"}};
  return {{"openapi", "3.1.0"},
          {"info",
           {{"title", "winnow"},
            {"version", WINNOW_VERSION},
            {"license", {{"name", "Apache-2.0"}, {"identifier", "Apache-2.0"}}}}},
          {"security", Json::array({{{"key", Json::array()}}})},
          {"paths", std::move(paths)},
          {"components",
           {{"schemas", std::move(schemas)},
            {"responses", {{"Error", error_response()}}},
            {"securitySchemes", {{"key", key}}}}}};
}

}  // namespace winnow::server
