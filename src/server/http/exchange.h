// The bytes of one answer, between their producer and the connection.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/http/http.h"
#include "server/http/http_server.h"
#include "server/http/stream.h"

namespace winnow::server {

/// Except for the Reply functions and call(), everything runs on the connection's strand.
class Exchange : public Reply, public std::enable_shared_from_this<Exchange> {
 public:
  /// `head_only`: the request was HEAD. `chunked`: the client speaks HTTP/1.1. `config` must
  /// outlive the exchange.
  Exchange(const Strand& strand, const HttpConfig& config, std::string id, bool head_only,
           bool chunked)
      : strand_(strand),
        wake_(strand),
        config_(config),
        id_(std::move(id)),
        head_only_(head_only),
        chunked_(chunked) {}

  void send(HttpResponse response) override;
  void begin(HttpResponse head) override;
  void write(std::string piece) override;
  void end() override;
  void cut() override;
  void run(std::function<void()> work) override;
  void on_gone(std::function<void()> gone) override;

  /// Calls a handler on the caller's thread. Until it returns, work and callbacks of this exchange
  /// wait, so a handler never runs beside them.
  void call(const std::function<void()>& handler);

  /// Closes the connection after this answer.
  void close_after() { keep_alive_ = false; }
  [[nodiscard]] bool keep_alive() const { return keep_alive_; }
  [[nodiscard]] int status() const { return status_; }
  [[nodiscard]] bool ended() const { return ended_; }
  [[nodiscard]] bool gone() const { return gone_; }
  [[nodiscard]] Outcome outcome() const { return outcome_; }
  /// The bytes to write now.
  [[nodiscard]] std::string take() { return std::exchange(unsent_, {}); }
  [[nodiscard]] bool has_unsent() const { return !unsent_.empty(); }
  /// Fires when there is more to write, at the end, and when the client has disconnected.
  [[nodiscard]] boost::asio::steady_timer& wake() { return wake_; }
  /// While no write is pending: `write` sends what the socket accepts at once, and returns the
  /// number of bytes.
  void write_directly(std::function<std::size_t(std::string_view)> write) {
    write_ = std::move(write);
  }
  /// The client has disconnected, or is too slow.
  void lose(Outcome why = Outcome::gone);

 private:
  void append_head(const HttpResponse& head, bool whole);
  void append_piece(std::string_view piece);
  void close();
  void tell_gone();
  void send_or_ring();
  void ring();
  template <class Work>
  void on_strand(Work work);

  Strand strand_;
  boost::asio::steady_timer wake_;
  const HttpConfig& config_;
  std::string id_;
  std::string unsent_;
  std::function<void()> on_gone_;
  std::vector<std::function<void()>> waiting_;  // work for when the handler has returned
  std::function<std::size_t(std::string_view)> write_;
  int status_ = 0;
  bool head_only_;
  bool chunked_;
  bool keep_alive_ = true;
  bool handled_ = true;  // no handler runs
  bool ended_ = false;
  bool gone_ = false;
  Outcome outcome_ = Outcome::answered;
};

}  // namespace winnow::server
