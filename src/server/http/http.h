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
  std::string id;      // the client's X-Request-Id if it is a plain word, else generated
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

/// Decodes percent signs followed by two hexadecimal digits; others stay.
std::string percent_decoded(std::string_view text);

/// The decoded names and values of a query, in order.
std::vector<std::pair<std::string, std::string>> query_parameters(std::string_view query);

/// The reason phrase of a status code: 404 -> "Not Found".
std::string_view reason_phrase(int status);

/// Answers one request: either send(), or begin(), any number of write() and end() or cut(). May be
/// called from any thread, also (without effect) when the client has disconnected.
class Reply {
 public:
  virtual ~Reply() = default;
  /// The whole answer.
  virtual void send(HttpResponse response) = 0;
  /// The head of an answer whose body comes in pieces; head.body is the first piece.
  virtual void begin(HttpResponse head) = 0;
  virtual void write(std::string piece) = 0;
  virtual void end() = 0;
  /// Like end(), for an answer that an error cut short after its head was sent.
  virtual void cut() = 0;
  /// Runs `work` on the server's threads; an exchange's pieces of work run in order, one at a time.
  virtual void run(std::function<void()> work) = 0;
  /// `gone` runs once, like work of run(), if the client disconnects before the end of the answer.
  virtual void on_gone(std::function<void()> gone) = 0;
};

/// Answers a request, now or later. Runs on the server's threads, as an exchange's first work;
/// must not throw.
using HttpHandler = std::function<void(HttpRequest request, std::shared_ptr<Reply> reply)>;

}  // namespace winnow::server
