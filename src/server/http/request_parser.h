// An HTTP/1 request, parsed incrementally from received bytes.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/api_error.h"
#include "server/http/http.h"

namespace winnow::server {

class RequestParser {
 public:
  RequestParser(std::size_t max_header_bytes, std::size_t max_body_bytes);
  ~RequestParser();
  RequestParser(const RequestParser&) = delete;
  RequestParser& operator=(const RequestParser&) = delete;

  /// Parses more. Returns the number of bytes consumed; the caller passes the rest again, together
  /// with more bytes, or they belong to the next request. Not allowed after is_over().
  std::size_t put(std::string_view bytes);
  /// The request is complete or refused.
  [[nodiscard]] bool is_over() const;
  [[nodiscard]] bool has_head() const;
  /// The error if this is no valid request, or it is too large.
  [[nodiscard]] const std::optional<ApiError>& refusal() const { return refusal_; }

  /// Refuses the request with this error, whatever follows.
  void refuse(const ApiError& refusal) { refusal_ = refusal; }

  /// The head, once it is complete.
  [[nodiscard]] HttpRequest head(std::string client) const;
  [[nodiscard]] bool expects_continue() const;
  [[nodiscard]] bool keep_alive() const;
  [[nodiscard]] bool speaks_http_1_1() const;
  /// The request, as far as it was read.
  [[nodiscard]] HttpRequest take(std::string client);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  std::optional<ApiError> refusal_;
};

}  // namespace winnow::server
