// The bytes of a connection, over TCP or TLS.
#pragma once

#include <utility>  // missing in awaitable.hpp of Boost 1.74

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace boost::asio::ssl {
class context;
}

namespace winnow::server {

/// Serialises the work of one connection.
using Strand = boost::asio::strand<boost::asio::io_context::executor_type>;

/// Used only on the socket's strand.
class Stream : public std::enable_shared_from_this<Stream> {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  template <class T>
  using Task = boost::asio::awaitable<T>;

  explicit Stream(Socket socket) : socket_(std::move(socket)), alarm_(socket_.get_executor()) {}
  virtual ~Stream() = default;

  enum class Opening : std::uint8_t { done, broken, plain_http };

  /// The handshake, if any. `plain_http`: the client sent plain HTTP to a TLS port.
  virtual Task<Opening> open() = 0;
  /// Number of bytes read; 0 at the end and when the connection is broken.
  virtual Task<std::size_t> read(std::span<char> bytes) = 0;
  /// False: the connection is broken.
  virtual Task<bool> write(std::string_view bytes) = 0;
  /// Writes what the socket accepts at once, without waiting; returns the number of bytes.
  virtual std::size_t write_now(std::string_view bytes) = 0;
  /// Tells the client that no more will be written.
  virtual Task<void> end() = 0;

  [[nodiscard]] Socket& socket() { return socket_; }
  /// The socket's executor as a Strand: it finds out faster that work is already on it.
  [[nodiscard]] Strand strand() { return *socket_.get_executor().target<Strand>(); }
  /// The client has closed its side, or the connection is broken; works despite unread bytes.
  [[nodiscard]] bool is_closed_by_peer();
  void close();
  /// Closes the connection after this time, unless called again before.
  void expires_after(std::chrono::milliseconds time);
  void expires_never() { deadline_ = Clock::time_point::max(); }
  [[nodiscard]] bool has_expired() const { return expired_; }

 private:
  using Clock = std::chrono::steady_clock;

  void arm();

  Socket socket_;
  Clock::time_point deadline_ = Clock::time_point::max();
  boost::asio::steady_timer alarm_;
  bool expired_ = false;
  bool armed_ = false;  // the alarm is set, for the deadline or earlier
};

/// With `tls`, which must outlive the stream, the connection is encrypted.
std::shared_ptr<Stream> make_stream(Stream::Socket socket, boost::asio::ssl::context* tls);

}  // namespace winnow::server
