// The bytes of a connection, over TCP or TLS.
#pragma once

#include <utility>  // which awaitable.hpp of Boost 1.74 forgets

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

/// Runs what belongs to one connection, a piece at a time.
using Strand = boost::asio::strand<boost::asio::io_context::executor_type>;

/// Used on the socket's strand alone.
class Stream : public std::enable_shared_from_this<Stream> {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  template <class T>
  using Task = boost::asio::awaitable<T>;

  explicit Stream(Socket socket) : socket_(std::move(socket)), alarm_(socket_.get_executor()) {}
  virtual ~Stream() = default;

  enum class Opening : std::uint8_t { done, broken, plain_http };

  /// What comes before the first byte. `plain_http`: the client does not know of TLS.
  virtual Task<Opening> open() = 0;
  /// Bytes read; 0 at the end and when the connection is broken.
  virtual Task<std::size_t> read(std::span<char> bytes) = 0;
  /// False: the connection is broken.
  virtual Task<bool> write(std::string_view bytes) = 0;
  /// Writes what goes out at once, without a wait: how many bytes that is.
  virtual std::size_t write_now(std::string_view bytes) = 0;
  /// Says that no more will be written.
  virtual Task<void> end() = 0;

  [[nodiscard]] Socket& socket() { return socket_; }
  /// The socket's executor, by its own type: work finds out sooner that it is on it already.
  [[nodiscard]] Strand strand() { return *socket_.get_executor().target<Strand>(); }
  /// The client's end is closed, or the connection is broken: unread bytes do not hide that.
  [[nodiscard]] bool is_closed_by_peer();
  void close();
  /// Closes it at that time, unless told otherwise before.
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
  bool armed_ = false;  // the alarm will go off, not later than the deadline
};

/// With `tls`, which must outlive the stream, what is sent is encrypted.
std::shared_ptr<Stream> make_stream(Stream::Socket socket, boost::asio::ssl::context* tls);

}  // namespace winnow::server
