#include "server/http/connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <string_view>
#include <utility>

namespace winnow::server {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

// Buffer sizes for a head, which usually fits, and for a body.
constexpr std::size_t kHeadBytes = std::size_t{4} << 10;
constexpr std::size_t kBodyBytes = std::size_t{64} << 10;
// Spare connections are few: a silent client must not keep probes out.
constexpr std::chrono::milliseconds kSparePatience{2000};
constexpr std::chrono::milliseconds kSpareLinger{200};
constexpr std::chrono::milliseconds kLongestLinger{2000};
// For the rest of a request that would be refused anyhow.
constexpr std::chrono::milliseconds kDrainPatience{1000};

asio::awaitable<void> rest(asio::steady_timer& timer, std::chrono::milliseconds most) {
  error_code error;
  timer.expires_after(most);
  co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, error));
}

}  // namespace

Connection::Connection(ConnectionOwner& owner, std::shared_ptr<Stream> stream, bool spare)
    : owner_(owner),
      stream_(std::move(stream)),
      watch_pause_(stream_->socket().get_executor()),
      spare_(spare) {
  error_code error;
  const auto endpoint = stream_->socket().remote_endpoint(error);
  client_ = error ? "?" : endpoint.address().to_string();
}

void Connection::start() {
  asio::co_spawn(
      stream_->socket().get_executor(), [self = shared_from_this()] { return self->serve(); },
      asio::detached);
}

void Connection::close_if_idle(std::chrono::milliseconds wait) {
  asio::post(stream_->socket().get_executor(), [self = shared_from_this(), wait] {
    if (self->idle_ && self->silent_ && Clock::now() - self->begun_ >= wait) {
      self->stream_->close();
    }
  });
}

void Connection::drain() {
  asio::post(stream_->socket().get_executor(), [self = shared_from_this()] {
    if (self->idle_) {
      self->stream_->close();
    } else if (self->reading_) {
      self->stream_->expires_after(kDrainPatience);
    }
  });
}

asio::awaitable<void> Connection::serve() {
  auto patience = owner_.config().header_timeout;
  if (spare_) {
    patience = std::min(patience, kSparePatience);
  }
  stream_->expires_after(patience);
  bool more = co_await open();
  while (more && !owner_.draining()) {
    more = co_await serve_one(patience);
    patience = owner_.config().keep_alive_timeout;
  }
  co_await close();
}

// A client that sends plain HTTP to a TLS port is answered in plain HTTP.
asio::awaitable<bool> Connection::open() {
  const Stream::Opening opening = co_await stream_->open();
  if (opening == Stream::Opening::plain_http) {
    owner_.meet_plain_http();
    const std::string body =
        to_response(ApiError(400, "this port speaks TLS: use https", {}, "tls_needed")).body;
    const std::string answer = fmt::format(
        "HTTP/1.1 400 {}\r\nServer: winnow\r\nContent-Type: application/json\r\n"
        "Content-Length: {}\r\nConnection: close\r\n\r\n{}",
        reason_phrase(400), body.size(), body);
    error_code error;
    co_await asio::async_write(stream_->socket(), asio::buffer(answer),
                               asio::redirect_error(asio::use_awaitable, error));
  }
  co_return opening == Stream::Opening::done;
}

// Serves one request, which must begin within `patience`; returns whether another may follow.
asio::awaitable<bool> Connection::serve_one(std::chrono::milliseconds patience) {
  const HttpConfig& config = owner_.config();
  RequestParser parser(config.max_header_bytes, config.max_body_bytes);
  begun_ = Clock::now();
  while (unread_.starts_with("\r\n")) {  // empty lines before a request are ignored
    unread_.erase(0, 2);
  }
  idle_ = unread_.empty();
  stream_->expires_after(idle_ ? patience : config.header_timeout);
  reading_ = true;
  const bool complete = co_await read(parser);
  reading_ = false;
  idle_ = false;
  if (!complete) {
    co_return false;
  }
  const bool chunked = parser.speaks_http_1_1();
  HttpRequest request = parser.take(client_);
  const auto exchange = std::make_shared<Exchange>(stream_->strand(), config, request.id,
                                                   request.method == "HEAD", chunked);
  HttpRecord record{
      .id = request.id, .client = client_, .method = request.method, .path = request.path};
  if (spare_ || !parser.keep_alive() || owner_.draining()) {
    exchange->close_after();
  }
  if (parser.refusal()) {
    owner_.tell(request, *parser.refusal(), exchange);
  } else {
    owner_.handle(std::move(request), exchange);
  }
  co_await answer(exchange, record);
  record.status = exchange->status();
  record.outcome = exchange->outcome();
  record.seconds = std::chrono::duration<double>(Clock::now() - begun_).count();
  owner_.record(record);
  lingering_ = parser.refusal().has_value();
  co_return exchange->keep_alive();
}

// Reads a request; false if the client left before its end, or was too slow.
asio::awaitable<bool> Connection::read(RequestParser& parser) {
  bool in_body = false;
  silent_ = unread_.empty();
  for (;;) {
    if (!unread_.empty()) {
      unread_.erase(0, parser.put(unread_));
    }
    const bool head_came = parser.has_head() && !std::exchange(in_body, true);
    if (head_came) {
      idle_ = false;
      begun_ = Clock::now();
    }
    if (head_came && !parser.refusal()) {
      spare_ = spare_ && !owner_.promote(*this);
      if (const auto refusal = owner_.refuse(parser.head(client_), spare_)) {
        parser.refuse(*refusal);  // accept no body without a valid key, or without room
      }
    }
    if (parser.is_over()) {
      co_return true;
    }
    if (head_came) {
      allow_to_read(owner_.config().body_timeout);
      if (parser.expects_continue()) {
        constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
        co_await stream_->write(kContinue);
      }
    }
    const std::size_t had = unread_.size();
    unread_.resize(had + (in_body ? kBodyBytes : kHeadBytes));
    const std::size_t got = co_await stream_->read(std::span(unread_).subspan(had));
    unread_.resize(had + got);
    if (got == 0) {
      co_return false;
    }
    if (std::exchange(silent_, false) && !spare_) {
      begun_ = Clock::now();
      allow_to_read(owner_.config().header_timeout);
    }
  }
}

void Connection::allow_to_read(std::chrono::milliseconds time) {
  stream_->expires_after(owner_.draining() ? std::min(time, kDrainPatience) : time);
}

// Writes the exchange's bytes until its end.
asio::awaitable<void> Connection::answer(const std::shared_ptr<Exchange>& exchange,
                                         HttpRecord& record) {
  watch(exchange);
  while (!exchange->gone() && (!exchange->ended() || exchange->has_unsent())) {
    if (!exchange->has_unsent()) {
      stream_->expires_never();
      exchange->write_directly([&](std::string_view bytes) {
        const std::size_t written = stream_->write_now(bytes);
        record.bytes += written;
        return written;
      });
      co_await rest(exchange->wake(), std::chrono::hours(24));
      exchange->write_directly({});
      continue;
    }
    const std::string bytes = exchange->take();
    stream_->expires_after(owner_.config().write_timeout);
    const bool written = co_await stream_->write(bytes);
    record.bytes += bytes.size();
    if (!written) {
      exchange->lose(stream_->has_expired() ? Outcome::slow : Outcome::gone);
    }
  }
  stream_->expires_never();
  while (watching_) {  // watching must not overlap with the next request
    error_code error;
    stream_->socket().cancel(error);
    watch_pause_.cancel();
    co_await rest(exchange->wake(), std::chrono::milliseconds(1));
  }
}

// Notifies the exchange when the client disconnects.
void Connection::watch(const std::shared_ptr<Exchange>& exchange) {
  watching_ = true;
  asio::co_spawn(
      stream_->socket().get_executor(),
      [self = shared_from_this(), exchange] { return self->watch_until_end(exchange); },
      asio::detached);
}

asio::awaitable<void> Connection::watch_until_end(std::shared_ptr<Exchange> exchange) {
  const auto over = [&] {
    return exchange->gone() || (exchange->ended() && !exchange->has_unsent());
  };
  while (!over()) {
    error_code error;
    co_await stream_->socket().async_wait(Stream::Socket::wait_read,
                                          asio::redirect_error(asio::use_awaitable, error));
    if (over() || error == asio::error::operation_aborted) {
      break;
    }
    if (error || stream_->is_closed_by_peer()) {
      exchange->lose();
      break;
    }
    // The next request has already arrived; check again later whether the client is still there.
    co_await rest(watch_pause_, std::chrono::milliseconds(100));
  }
  watching_ = false;
  exchange->wake().cancel();
}

// If we closed at once, a client that is still sending would be reset and never read our answer.
asio::awaitable<void> Connection::close() {
  stream_->expires_after(spare_ ? kSpareLinger : kLongestLinger);
  co_await stream_->end();
  unread_.resize(kBodyBytes);
  while (lingering_) {
    lingering_ = co_await stream_->read(unread_) > 0;
  }
  stream_->close();
}

}  // namespace winnow::server
