// One client's connection: requests in, answers out, one after another.
#pragma once

#include <utility>  // which awaitable.hpp of Boost 1.74 forgets

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

/// What a connection needs of the server that it belongs to. Called on the server's threads.
class ConnectionOwner {
 public:
  virtual ~ConnectionOwner() = default;
  [[nodiscard]] virtual const HttpConfig& config() const = 0;
  /// No more requests are taken.
  [[nodiscard]] virtual bool draining() const = 0;
  /// Whether a spare connection may become an ordinary one. Then it is one.
  virtual bool promote(const Connection& connection) = 0;
  /// What a request without its body is refused with, if it is, on a `spare` connection or another.
  virtual std::optional<ApiError> refuse(const HttpRequest& head, bool spare) = 0;
  /// Answers a request that was refused, of which there may be the head alone, or less.
  virtual void tell(const HttpRequest& request, const ApiError& refusal,
                    const std::shared_ptr<Exchange>& exchange) = 0;
  virtual void handle(HttpRequest request, const std::shared_ptr<Exchange>& exchange) = 0;
  virtual void record(const HttpRecord& record) = 0;
  /// A client speaks HTTP where TLS is spoken.
  virtual void meet_plain_http() = 0;
  /// The connection is no more.
  virtual void forget(const Connection& connection) = 0;
};

/// Runs on its stream's strand, and lives until it is closed.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  /// `owner` must outlive it. `spare`: beyond the most connections, for one request.
  Connection(ConnectionOwner& owner, std::shared_ptr<Stream> stream, bool spare);
  ~Connection() { owner_.forget(*this); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// From any thread, as is close_if_idle().
  void start();
  /// Closes it if it has waited for a request for so long.
  void close_if_idle(std::chrono::milliseconds wait);

 private:
  using Clock = std::chrono::steady_clock;
  template <class T>
  using Task = boost::asio::awaitable<T>;

  Task<void> serve();
  Task<bool> open();
  Task<bool> serve_one(std::chrono::milliseconds patience);
  Task<bool> read(RequestParser& parser);
  Task<void> answer(const std::shared_ptr<Exchange>& exchange, HttpRecord& record);
  void watch(const std::shared_ptr<Exchange>& exchange);
  Task<void> watch_until_end(std::shared_ptr<Exchange> exchange);
  Task<void> close();

  ConnectionOwner& owner_;
  std::shared_ptr<Stream> stream_;
  boost::asio::steady_timer watch_pause_;
  std::string client_;
  bool spare_;
  std::string unread_;       // bytes that have come and belong to no request yet
  Clock::time_point begun_;  // when the request's head was there, or the wait for it began
  bool idle_ = false;        // waits for a request's head
  bool silent_ = false;      // nothing of it has come
  bool watching_ = false;    // watch_until_end() runs
  bool lingering_ = false;   // a request was refused before it was read
};

}  // namespace winnow::server
