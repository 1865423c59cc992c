#include "server/http/stream.h"

#include <openssl/err.h>
#include <openssl/sslerr.h>
#include <poll.h>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <utility>

namespace winnow::server {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

class TcpStream : public Stream {
 public:
  explicit TcpStream(Socket socket) : Stream(std::move(socket)) {
    error_code error;
    this->socket().non_blocking(true, error);
  }

  Task<Opening> open() override { co_return Opening::done; }

  Task<std::size_t> read(std::span<char> bytes) override {
    error_code error;
    co_return co_await socket().async_read_some(asio::buffer(bytes.data(), bytes.size()),
                                                asio::redirect_error(asio::use_awaitable, error));
  }

  Task<bool> write(std::string_view bytes) override {
    error_code error;
    co_await asio::async_write(socket(), asio::buffer(bytes),
                               asio::redirect_error(asio::use_awaitable, error));
    co_return !error;
  }

  std::size_t write_now(std::string_view bytes) override {
    error_code error;  // ignored: a persistent error comes again with the next write()
    return socket().write_some(asio::buffer(bytes), error);
  }

  Task<void> end() override {
    error_code error;
    socket().shutdown(Socket::shutdown_send, error);
    co_return;
  }
};

class TlsStream : public Stream {
 public:
  TlsStream(Socket socket, asio::ssl::context& context)
      : Stream(std::move(socket)), tls_(this->socket(), context) {}

  Task<Opening> open() override {
    error_code error;
    co_await tls_.async_handshake(asio::ssl::stream_base::server,
                                  asio::redirect_error(asio::use_awaitable, error));
    const bool is_http = error.category() == asio::error::get_ssl_category() &&
                         ERR_GET_REASON(error.value()) == SSL_R_HTTP_REQUEST;
    co_return is_http ? Opening::plain_http : error ? Opening::broken : Opening::done;
  }

  Task<std::size_t> read(std::span<char> bytes) override {
    error_code error;
    co_return co_await tls_.async_read_some(asio::buffer(bytes.data(), bytes.size()),
                                            asio::redirect_error(asio::use_awaitable, error));
  }

  Task<bool> write(std::string_view bytes) override {
    error_code error;
    co_await asio::async_write(tls_, asio::buffer(bytes),
                               asio::redirect_error(asio::use_awaitable, error));
    co_return !error;
  }

  std::size_t write_now(std::string_view /*bytes*/) override { return 0; }

  Task<void> end() override {
    error_code error;
    co_await tls_.async_shutdown(asio::redirect_error(asio::use_awaitable, error));
    socket().shutdown(Socket::shutdown_send, error);
  }

 private:
  asio::ssl::stream<Socket&> tls_;
};

}  // namespace

bool Stream::is_closed_by_peer() {
  pollfd query{socket_.native_handle(), POLLRDHUP, 0};
  return ::poll(&query, 1, 0) > 0 && (query.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

void Stream::close() {
  error_code error;
  socket_.close(error);
  alarm_.cancel();
}

// Most deadlines are postponed before they come, so the alarm is not moved: if it fires too
// early, it is set again.
void Stream::expires_after(std::chrono::milliseconds time) {
  deadline_ = Clock::now() + time;
  if (!armed_ || alarm_.expiry() > deadline_) {
    arm();
  }
}

void Stream::arm() {
  armed_ = true;
  alarm_.expires_at(deadline_);  // this cancels an alarm set before
  alarm_.async_wait([weak = weak_from_this()](const error_code& error) {
    const auto stream = weak.lock();
    if (error || !stream) {
      return;
    }
    stream->armed_ = false;
    if (Clock::now() >= stream->deadline_) {
      stream->expired_ = true;
      stream->close();
    } else if (stream->deadline_ != Clock::time_point::max()) {
      stream->arm();
    }
  });
}

std::shared_ptr<Stream> make_stream(Stream::Socket socket, asio::ssl::context* tls) {
  if (tls == nullptr) {
    return std::make_shared<TcpStream>(std::move(socket));
  }
  return std::make_shared<TlsStream>(std::move(socket), *tls);
}

}  // namespace winnow::server
