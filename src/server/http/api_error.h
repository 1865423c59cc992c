// Errors of the API, as clients see them.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <stdexcept>
#include <string>
#include <string_view>

#include "server/http/http.h"

namespace winnow::server {

/// An error in OpenAI's shape. The message is for people, `param` the field at fault (may be
/// empty), `code` an identifier for programs.
class ApiError : public std::runtime_error {
 public:
  ApiError(int status, const std::string& message, std::string param = {}, std::string code = {})
      : std::runtime_error(message),
        status_(status),
        param_(std::move(param)),
        code_(std::move(code)) {}

  [[nodiscard]] int status() const { return status_; }
  [[nodiscard]] const std::string& param() const { return param_; }
  [[nodiscard]] const std::string& code() const { return code_; }

 private:
  int status_;
  std::string param_;
  std::string code_;
};

/// The same error for a client that uses other names for parts of the body: `names` maps prefixes
/// of paths to the client's names.
ApiError renamed(const ApiError& error, const std::map<std::string, std::string>& names);

/// For requests during shutdown, and those still waiting at its end (503).
ApiError shutting_down();

/// {"error": {"message", "type", "param", "code"}}
nlohmann::ordered_json to_json(const ApiError& error);
HttpResponse to_response(const ApiError& error);

/// JSON on one line; invalid UTF-8 becomes U+FFFD.
std::string dump(const nlohmann::ordered_json& value);
/// Appends dump(text), but faster: most texts need no escapes.
void append_quoted(std::string_view text, std::string& json);

}  // namespace winnow::server
