// One HTTP request, and the reply to its client.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace winnow::server {

struct HttpRequest {
  std::string id;      // the client's X-Request-Id if it is a plain word, else one of our own
  std::string method;  // GET, POST, ...
  std::string path;    // without the query
  std::string query;   // what follows the question mark
  std::string client;  // address
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  std::string body;

  /// The first header of this name (in lower case); "" when there is none.
  [[nodiscard]] std::string_view header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string body = {};
};

/// What percent signs and two hexadecimal digits stand for; others stay.
std::string percent_decoded(std::string_view text);

/// Names and values of a query, decoded, in its order.
std::vector<std::pair<std::string, std::string>> query_parameters(std::string_view query);

/// The phrase that goes with a status code: 404 -> "Not Found".
std::string_view reason_phrase(int status);

/// Answers one request: either send(), or begin(), any number of write() and end() or cut(). May be
/// called from any thread, and keeps working (to no effect) when the client is gone.
class Reply {
 public:
  virtual ~Reply() = default;
  /// The whole answer.
  virtual void send(HttpResponse response) = 0;
  /// The head of an answer whose body comes in pieces; head.body is its first.
  virtual void begin(HttpResponse head) = 0;
  virtual void write(std::string piece) = 0;
  virtual void end() = 0;
  /// As end(), of an answer that an error has cut short, which its head could not say.
  virtual void cut() = 0;
  /// Runs `work` on the server's threads, one piece of work of an exchange at a time, in order.
  virtual void run(std::function<void()> work) = 0;
  /// `gone` runs once, as work does, if the client disconnects before the end of the answer.
  virtual void on_gone(std::function<void()> gone) = 0;
};

/// Answers a request, now or later. Runs on the server's threads, as the first work of an exchange;
/// must not throw.
using HttpHandler = std::function<void(HttpRequest request, std::shared_ptr<Reply> reply)>;

}  // namespace winnow::server
