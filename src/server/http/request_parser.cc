#include "server/http/request_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cctype>
#include <random>
#include <utility>

namespace winnow::server {
namespace {

namespace http = boost::beast::http;

bool is_plain_word(std::string_view text) {
  return !text.empty() && text.size() <= 64 && std::ranges::all_of(text, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
  });
}

std::string new_id() {
  thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("req-{:016x}", random());
}

// Case-insensitive comparison of two names.
bool is_same_word(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

template <class Message>
std::string_view value_of(const Message& message, http::field field) {
  const auto value = message[field];
  return {value.data(), value.size()};
}

// Whether all characters may be in a host and port (RFC 3986, section 3.2). True if empty.
bool is_host(std::string_view value) {
  return std::ranges::all_of(value, [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("-._~%!$&'()*+,;=:[]").find(c) != std::string_view::npos;
  });
}

// The path and query of a target; for an absolute target (RFC 9112, section 3.2.2), the part after
// the authority.
std::string_view origin_form(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (is_same_word(target.substr(0, scheme.size()), scheme)) {
      const auto path = target.find('/', scheme.size());
      return path == std::string_view::npos ? "/" : target.substr(path);
    }
  }
  return target;
}

// The error for a head that was parsed, but whose body could not be understood, or that violates
// RFC 9112.
template <class Message>
std::optional<ApiError> refusal_of_head(const Message& message) {
  const std::size_t hosts = message.count(http::field::host);
  if (hosts > 1 || (hosts == 0 && message.version() >= 11)) {
    return ApiError(400, "the head has no Host, or several", {}, "malformed_request");
  }
  if (!is_host(value_of(message, http::field::host))) {
    return ApiError(400, "the head's Host is no name or address", {}, "malformed_request");
  }
  if (const auto coding = value_of(message, http::field::transfer_encoding);
      !coding.empty() && !is_same_word(coding, "chunked")) {
    return ApiError(501, "the only Transfer-Encoding that this server accepts is chunked", {},
                    "unsupported_transfer_encoding");
  }
  if (const auto coding = value_of(message, http::field::content_encoding);
      !coding.empty() && !is_same_word(coding, "identity")) {
    return ApiError(415, "the body has a Content-Encoding; this server accepts none", {},
                    "unsupported_content_encoding");
  }
  if (const auto expected = value_of(message, http::field::expect);
      !expected.empty() && !is_same_word(expected, "100-continue")) {
    return ApiError(417, "the only expectation that this server accepts is 100-continue", {},
                    "expectation_failed");
  }
  return std::nullopt;
}

// Converts everything but the body.
template <class Message>
HttpRequest head_of(const Message& message, std::string client) {
  HttpRequest request;
  request.method = std::string(message.method_string());
  const std::string target(origin_form({message.target().data(), message.target().size()}));
  const auto question = target.find('?');
  request.path = target.substr(0, question);
  request.query = question == std::string::npos ? "" : target.substr(question + 1);
  request.client = std::move(client);
  for (const auto& field : message) {
    std::string name(field.name_string());
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
    request.headers.emplace_back(std::move(name), std::string(field.value()));
  }
  const std::string_view id = request.header("x-request-id");
  request.id = is_plain_word(id) ? std::string(id) : new_id();
  return request;
}

// Size limits of a request.
struct Limits {
  std::size_t header = 0;
  std::size_t body = 0;
};

ApiError refusal_of(const boost::system::error_code& error, bool has_line, const Limits& most) {
  if (error == http::error::body_limit) {
    return {413,
            fmt::format("the body is larger than the {} bytes that this server accepts "
                        "(--max-body-mib)",
                        most.body),
            {},
            "body_too_large"};
  }
  if (error == http::error::header_limit && !has_line) {
    return {
        414,
        fmt::format("the target is longer than the {} bytes that this server accepts", most.header),
        {},
        "target_too_long"};
  }
  if (error == http::error::header_limit) {
    return {
        431,
        fmt::format("the head is larger than the {} bytes that this server accepts", most.header),
        {},
        "header_too_large"};
  }
  if (error == http::error::bad_version) {
    return {505, "this server speaks HTTP/1", {}, "unsupported_http_version"};
  }
  return {400, fmt::format("not an HTTP request: {}", error.message()), {}, "malformed_request"};
}

// Bytes of empty lines before a request, which are ignored (RFC 9112, section 2.2).
std::size_t empty_lines(std::string_view bytes) {
  std::size_t count = 0;
  while (bytes.substr(count).starts_with("\r\n")) {
    count += 2;
  }
  return count;
}

// The position of the minor version in a request line, if it is above HTTP/1.1; else npos.
std::size_t higher_minor_version(std::string_view bytes) {
  constexpr std::string_view kMajor = "HTTP/1.";
  const std::string_view line = bytes.substr(0, bytes.find('\r'));
  const std::size_t target = line.find(' ');
  const std::size_t space = target == std::string_view::npos ? target : line.find(' ', target + 1);
  if (space == std::string_view::npos || !line.substr(space + 1).starts_with(kMajor)) {
    return std::string_view::npos;
  }
  const std::size_t at = space + 1 + kMajor.size();
  return at < line.size() && line[at] >= '2' && line[at] <= '9' ? at : std::string_view::npos;
}

}  // namespace

struct RequestParser::Impl {
  http::request_parser<http::string_body> parser;
  Limits most;
  bool begun = false;
  bool has_line = false;
  bool head_checked = false;
};

RequestParser::RequestParser(std::size_t max_header_bytes, std::size_t max_body_bytes)
    : impl_(std::make_unique<Impl>()) {
  impl_->most = {max_header_bytes, max_body_bytes};
  impl_->parser.eager(true);
  impl_->parser.header_limit(static_cast<std::uint32_t>(max_header_bytes));
  impl_->parser.body_limit(max_body_bytes);
}

RequestParser::~RequestParser() = default;

std::size_t RequestParser::put(std::string_view bytes) {
  const std::size_t skipped = impl_->begun ? 0 : empty_lines(bytes);
  bytes.remove_prefix(skipped);
  if (bytes.empty() || (!impl_->begun && bytes == "\r")) {
    return skipped;
  }
  impl_->begun = true;
  // A client with a higher minor version understands 1.1 (RFC 9110, section 2.5).
  std::string as_1_1;
  if (!impl_->has_line) {
    if (const auto at = higher_minor_version(bytes); at != std::string_view::npos) {
      as_1_1 = bytes;
      as_1_1[at] = '1';
      bytes = as_1_1;
    }
  }
  boost::system::error_code error;
  const std::size_t read = impl_->parser.put(boost::asio::buffer(bytes), error);
  const std::size_t used = skipped + read;
  impl_->has_line = impl_->has_line || read > 0;
  if (error && error != http::error::need_more) {
    const bool has_line =
        !impl_->parser.get().target().empty() || bytes.find("\r\n") < impl_->most.header;
    refusal_ = refusal_of(error, has_line, impl_->most);
  }
  if (!refusal_ && impl_->parser.is_header_done() && !std::exchange(impl_->head_checked, true)) {
    refusal_ = refusal_of_head(impl_->parser.get());
  }
  return used;
}

bool RequestParser::is_over() const {
  return refusal_ || impl_->parser.is_done();
}

bool RequestParser::has_head() const {
  return impl_->parser.is_header_done();
}

bool RequestParser::expects_continue() const {
  return boost::beast::iequals(impl_->parser.get()[http::field::expect], "100-continue");
}

bool RequestParser::keep_alive() const {
  return !refusal_ && impl_->parser.keep_alive();
}

bool RequestParser::speaks_http_1_1() const {
  return impl_->parser.get().version() >= 11;
}

HttpRequest RequestParser::head(std::string client) const {
  return head_of(impl_->parser.get(), std::move(client));
}

HttpRequest RequestParser::take(std::string client) {
  auto message = impl_->parser.release();
  HttpRequest request = head_of(message, std::move(client));
  request.body = std::move(message.body());
  return request;
}

}  // namespace winnow::server
