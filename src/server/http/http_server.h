// HTTP/1.1 over TCP or TLS: connections, limits, time-outs.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/http/api_error.h"
#include "server/http/http.h"

namespace winnow::server {

struct HttpConfig {
  std::string host = "127.0.0.1";
  int port = 8080;       // 0: any free one
  std::string tls_cert;  // PEM files; both or neither
  std::string tls_key;
  std::vector<std::pair<std::string, std::string>> headers;  // sent with every answer
  int threads = 2;
  int max_connections = 1024;
  std::size_t max_header_bytes = std::size_t{16} << 10;
  std::size_t max_body_bytes = std::size_t{8} << 20;
  std::size_t max_unsent_bytes = std::size_t{4} << 20;   // for a client that reads too slowly
  std::chrono::milliseconds header_timeout{10'000};      // for a complete head
  std::chrono::milliseconds keep_alive_timeout{75'000};  // for the next head to begin
  std::chrono::milliseconds body_timeout{60'000};        // for a complete body
  std::chrono::milliseconds write_timeout{60'000};       // for the client to accept written bytes
};

/// How an answer ended.
enum class Outcome : std::uint8_t {
  answered,
  cut,   // by an error after its head; its last event contains the error
  gone,  // the client disconnected before its end
  slow,  // the client did not read it in time
};

/// Facts about a finished exchange.
struct HttpRecord {
  std::string id;
  std::string client;
  std::string method;
  std::string path;
  int status = 0;
  Outcome outcome = Outcome::answered;
  std::size_t bytes = 0;
  double seconds = 0.0;
};

/// Serves until it is destroyed. Requests that never reach the handler (malformed, too large, too
/// slow) are refused. Some connections above config.max_connections are accepted for one request
/// each: probes must reach a busy server, and other clients learn that it is busy.
class HttpServer {
 public:
  /// The error that refuses a request before its body is read, if any. `full`: it came on a
  /// connection above max_connections.
  using Gate = std::function<std::optional<ApiError>(const HttpRequest& head, bool full)>;

  /// Answers a refused request.
  using Teller = std::function<void(const HttpRequest& request, const ApiError& refusal,
                                    const std::shared_ptr<Reply>& reply)>;

  /// Listens and starts its threads. Throws Error when the address or a TLS file cannot be used.
  /// On the server's threads, it calls `gate` before and `done` after every exchange, and `warn` at
  /// times about failed connections; none of them may throw, nor may `tell`.
  HttpServer(const HttpConfig& config, Gate gate, Teller tell, HttpHandler handler,
             std::function<void(const HttpRecord&)> done,
             std::function<void(const std::string& message)> warn);
  /// Stops, and closes all connections. No Reply may be used after this.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// The port that it listens on.
  [[nodiscard]] int port() const;
  /// Connections that are open now.
  [[nodiscard]] int connections() const;
  /// Connections above max_connections that were answered 503, or closed at once, so far.
  [[nodiscard]] std::int64_t refused_connections() const;
  /// Runs `work` on the server's threads: one piece at a time, in order, and on a core other than
  /// the caller's if there is one. Dropped after stop().
  void run(std::function<void()> work);
  /// Accepts no more connections and closes those that wait for a request; answers continue.
  void drain();
  /// Stops the server's threads: no more handling, sending or callbacks.
  void stop();

  class Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace winnow::server
