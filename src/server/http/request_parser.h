// An HTTP/1 request, read from bytes as they come.
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

  /// Reads on. Returns how many of `bytes` are done with; the others are to be given again, with
  /// more behind them, or belong to the next request. Not after is_over().
  std::size_t put(std::string_view bytes);
  /// All of it was read, or there is a refusal.
  [[nodiscard]] bool is_over() const;
  [[nodiscard]] bool has_head() const;
  /// What the client is told if this is no request, or too large.
  [[nodiscard]] const std::optional<ApiError>& refusal() const { return refusal_; }

  /// The client gets this error, whatever follows.
  void refuse(const ApiError& refusal) { refusal_ = refusal; }

  /// Of the head, once that is there.
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
