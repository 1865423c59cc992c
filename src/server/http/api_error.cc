#include "server/http/api_error.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "checkpoint/json_text.h"

namespace winnow::server {
namespace {

using Json = nlohmann::ordered_json;

// OpenAI's error types for status codes.
std::string_view type_of(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 500:
    case 501:
      return "server_error";
    case 503:
      return "overloaded_error";
    default:
      return "invalid_request_error";
  }
}

}  // namespace

std::string dump(const Json& value) {
  return json_text_replacing(value);
}

void append_quoted(std::string_view text, std::string& json) {
  const auto stands_for_itself = [](char c) {
    return c >= ' ' && c < 0x7F && c != '"' && c != '\\';
  };
  if (std::ranges::all_of(text, stands_for_itself)) {
    json += '"';
    json += text;
    json += '"';
  } else {
    json += dump(Json(text));
  }
}

ApiError renamed(const ApiError& error, const std::map<std::string, std::string>& names) {
  const std::string& param = error.param();
  std::string known;  // the longest prefix that has a name
  std::string name;
  for (const auto& [from, to] : names) {
    const std::string behind = param.starts_with(from) ? param.substr(from.size(), 1) : "no end";
    if ((behind.empty() || behind == "." || behind == "[") && from.size() > known.size()) {
      known = from;
      name = to;
    }
  }
  const auto with_name = [&](const std::string& text) {
    return text.starts_with(param) ? name + text.substr(known.size()) : text;
  };
  return known.empty()
             ? error
             : ApiError(error.status(), with_name(error.what()), with_name(param), error.code());
}

ApiError shutting_down() {
  return {503, "the server is shutting down", {}, "shutting_down"};
}

Json to_json(const ApiError& error) {
  const auto or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  return {{"error",
           {{"message", error.what()},
            {"type", type_of(error.status())},
            {"param", or_null(error.param())},
            {"code", or_null(error.code())}}}};
}

HttpResponse to_response(const ApiError& error) {
  HttpResponse response{.status = error.status(), .headers = {}, .body = dump(to_json(error))};
  if (error.status() == 401) {
    response.headers.emplace_back("WWW-Authenticate", "Bearer");
  }
  if (error.code() == "unsupported_content_encoding") {
    response.headers.emplace_back("Accept-Encoding", "identity");
  }
  if (error.status() == 429 || error.status() == 503) {
    response.headers.emplace_back("Retry-After", "1");
  }
  return response;
}

}  // namespace winnow::server
