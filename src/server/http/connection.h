// One client's connection: reads requests and writes answers, one after another.
#pragma once

#include <utility>  // missing in awaitable.hpp of Boost 1.74

#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "server/http/exchange.h"
#include "server/http/http_server.h"
#include "server/http/request_parser.h"
#include "server/http/stream.h"

namespace winnow::server {

class Connection;

/// The server as a connection sees it. Called on the server's threads.
class ConnectionOwner {
 public:
  virtual ~ConnectionOwner() = default;
  [[nodiscard]] virtual const HttpConfig& config() const = 0;
  /// No more requests are accepted.
  [[nodiscard]] virtual bool draining() const = 0;
  /// Turns a spare connection into an ordinary one, if there is room; returns whether it did.
  virtual bool promote(const Connection& connection) = 0;
  /// The error that refuses a request by its head, if any; `spare`: on a spare connection.
  virtual std::optional<ApiError> refuse(const HttpRequest& head, bool spare) = 0;
  /// Answers a refused request, of which maybe only the head, or less, was read.
  virtual void tell(const HttpRequest& request, const ApiError& refusal,
                    const std::shared_ptr<Exchange>& exchange) = 0;
  virtual void handle(HttpRequest request, const std::shared_ptr<Exchange>& exchange) = 0;
  virtual void record(const HttpRecord& record) = 0;
  /// A client sent plain HTTP to a TLS port.
  virtual void meet_plain_http() = 0;
  /// The connection has ended.
  virtual void forget(const Connection& connection) = 0;
};

/// Runs on its stream's strand, and lives until it is closed.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  /// `owner` must outlive it. `spare`: above the connection limit, for one request.
  Connection(ConnectionOwner& owner, std::shared_ptr<Stream> stream, bool spare);
  ~Connection() { owner_.forget(*this); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// May be called from any thread, as may close_if_idle() and drain().
  void start();
  /// Closes it if it has waited for a request at least this long.
  void close_if_idle(std::chrono::milliseconds wait);
  /// Closes it as soon as it is idle, and soon if its request does not arrive whole. The owner is
  /// draining().
  void drain();

 private:
  using Clock = std::chrono::steady_clock;
  template <class T>
  using Task = boost::asio::awaitable<T>;

  Task<void> serve();
  Task<bool> open();
  Task<bool> serve_one(std::chrono::milliseconds patience);
  Task<bool> read(RequestParser& parser);
  void allow_to_read(std::chrono::milliseconds time);
  Task<void> answer(const std::shared_ptr<Exchange>& exchange, HttpRecord& record);
  void watch(const std::shared_ptr<Exchange>& exchange);
  Task<void> watch_until_end(std::shared_ptr<Exchange> exchange);
  Task<void> close();

  ConnectionOwner& owner_;
  std::shared_ptr<Stream> stream_;
  boost::asio::steady_timer watch_pause_;
  std::string client_;
  bool spare_;
  std::string unread_;       // received bytes that belong to no request yet
  Clock::time_point begun_;  // when the request's head arrived, or the wait for it began
  bool reading_ = false;     // read() is running
  bool idle_ = false;        // waiting for a request's head
  bool silent_ = false;      // none of it has arrived
  bool watching_ = false;    // watch_until_end() is running
  bool lingering_ = false;   // a request was refused before it was read completely
};

}  // namespace winnow::server
