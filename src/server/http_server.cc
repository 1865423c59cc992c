#include "server/http_server.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <cctype>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "server/api_error.h"
#include "server/exchange.h"

namespace winnow::server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::use_awaitable;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;
using Done = std::function<void(const HttpRecord&)>;
using Parser = http::request_parser<http::string_body>;

// The client's end is closed, or the connection is broken: unread bytes do not hide that.
bool is_closed_by_peer(int fd) {
  pollfd query{fd, POLLRDHUP, 0};
  return ::poll(&query, 1, 0) > 0 && (query.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

bool is_plain_word(std::string_view text) {
  return !text.empty() && text.size() <= 64 && std::ranges::all_of(text, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
  });
}

std::string new_id() {
  thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("req-{:016x}", random());
}

HttpRequest to_request(const Parser::value_type& message, const std::string& client) {
  HttpRequest request;
  request.method = std::string(message.method_string());
  const std::string target(message.target());
  const auto question = target.find('?');
  request.path = target.substr(0, question);
  request.query = question == std::string::npos ? "" : target.substr(question + 1);
  request.client = client;
  for (const auto& field : message) {
    std::string name(field.name_string());
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
    request.headers.emplace_back(std::move(name), std::string(field.value()));
  }
  const std::string_view id = request.header("x-request-id");
  request.id = is_plain_word(id) ? std::string(id) : new_id();
  return request;
}

// What the client is told when its request cannot be read; nullopt: nothing, it has left or was too
// slow (Beast closes what times out).
std::optional<ApiError> read_error(const error_code& error) {
  if (error == http::error::body_limit) {
    return ApiError(413, "the body is larger than this server accepts", {}, "body_too_large");
  }
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return ApiError(431, "the head is larger than this server accepts", {}, "header_too_large");
  }
  if (error.category() == http::make_error_code(http::error::bad_method).category() &&
      error != http::error::end_of_stream && error != http::error::partial_message) {
    return ApiError(400, fmt::format("not an HTTP request: {}", error.message()), {},
                    "malformed_request");
  }
  return std::nullopt;
}

}  // namespace

// One client's connection, on a strand of its own.
class AnyConnection {
 public:
  virtual ~AnyConnection() = default;
  /// Closes it if it waits for a request. From any thread.
  virtual void close_if_idle() = 0;
};

class HttpServer::Impl {
 public:
  Impl(const HttpConfig& config, HttpHandler handler, Done done);
  ~Impl() { stop(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  [[nodiscard]] const HttpConfig& config() const { return config_; }
  [[nodiscard]] int port() const { return acceptor_.local_endpoint().port(); }
  [[nodiscard]] bool draining() const { return draining_; }
  [[nodiscard]] int connections() const { return connections_; }
  void drain();
  void stop();
  void handle(HttpRequest request, const std::shared_ptr<Exchange>& exchange) {
    handler_(std::move(request), exchange);
  }
  void record(const HttpRecord& record) { done_(record); }
  void enter(const std::shared_ptr<AnyConnection>& connection);
  void leave();

 private:
  void listen();
  void load_tls();
  asio::awaitable<void> accept_all();
  void serve(tcp::socket socket);

  HttpConfig config_;
  HttpHandler handler_;
  Done done_;
  std::mutex mutex_;  // of open_
  std::set<std::weak_ptr<AnyConnection>, std::owner_less<>> open_;
  std::atomic<int> connections_ = 0;
  std::atomic<bool> draining_ = false;
  std::optional<asio::ssl::context> tls_;
  asio::io_context context_;  // owns the connections, so it goes before what they use
  tcp::acceptor acceptor_;
  std::vector<std::thread> threads_;
};

namespace {

template <class Stream>
class Connection : public AnyConnection, public std::enable_shared_from_this<Connection<Stream>> {
 public:
  Connection(HttpServer::Impl& server, Stream stream)
      : server_(server), stream_(std::move(stream)) {
    error_code error;
    const auto endpoint = lowest().socket().remote_endpoint(error);
    client_ = error ? "?" : endpoint.address().to_string();
  }
  ~Connection() override { server_.leave(); }

  void start() {
    asio::co_spawn(
        lowest().get_executor(), [self = this->shared_from_this()] { return self->serve(); },
        asio::detached);
  }

  void close_if_idle() override {
    asio::post(lowest().get_executor(), [self = this->shared_from_this()] {
      if (self->idle_) {
        self->lowest().close();
      }
    });
  }

 private:
  static constexpr bool kTls = !std::is_same_v<Stream, beast::tcp_stream>;

  beast::tcp_stream& lowest() { return beast::get_lowest_layer(stream_); }

  asio::awaitable<void> serve() {
    error_code error;
    if constexpr (kTls) {
      lowest().expires_after(server_.config().header_timeout);
      co_await stream_.async_handshake(asio::ssl::stream_base::server,
                                       asio::redirect_error(use_awaitable, error));
    }
    bool more = !error;
    while (more && !server_.draining()) {
      more = co_await serve_one();
    }
    co_await close();
  }

  // One request and its answer; whether another may follow.
  asio::awaitable<bool> serve_one() {
    const auto& config = server_.config();
    Parser parser;
    parser.header_limit(static_cast<std::uint32_t>(config.max_header_bytes));
    parser.body_limit(config.max_body_bytes);
    error_code error;
    idle_ = buffer_.size() == 0;
    lowest().expires_after(config.header_timeout);
    co_await http::async_read_header(stream_, buffer_, parser,
                                     asio::redirect_error(use_awaitable, error));
    idle_ = false;
    const auto start = Clock::now();
    if (!error && !parser.is_done()) {
      lowest().expires_after(config.body_timeout);
      if (beast::iequals(parser.get()[http::field::expect], "100-continue")) {
        constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
        co_await asio::async_write(stream_, asio::buffer(kContinue),
                                   asio::redirect_error(use_awaitable, error));
      }
      if (!error) {
        co_await http::async_read(stream_, buffer_, parser,
                                  asio::redirect_error(use_awaitable, error));
      }
    }
    const auto refusal = error ? read_error(error) : std::nullopt;
    if (error && !refusal) {
      co_return false;
    }
    HttpRequest request = to_request(parser.get(), client_);
    const auto exchange =
        std::make_shared<Exchange>(lowest().get_executor(), config, request.id,
                                   request.method == "HEAD", parser.get().version() >= 11);
    HttpRecord record{
        .id = request.id, .client = client_, .method = request.method, .path = request.path};
    if (refusal) {
      exchange->close_after();
      exchange->send(to_response(*refusal));
    } else {
      if (!parser.keep_alive()) {
        exchange->close_after();
      }
      request.body = std::move(parser.get().body());
      server_.handle(std::move(request), exchange);
    }
    co_await answer(exchange, record);
    record.status = exchange->status();
    record.gone = exchange->gone();
    record.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    server_.record(record);
    lingering_ = refusal.has_value();
    co_return exchange->keep_alive();
  }

  // Writes what the exchange says until its end.
  asio::awaitable<void> answer(const std::shared_ptr<Exchange>& exchange, HttpRecord& record) {
    watch(exchange);
    while (!exchange->gone() && (!exchange->ended() || exchange->has_unsent())) {
      if (!exchange->has_unsent()) {
        co_await rest(exchange->wake(), std::chrono::hours(24));
        continue;
      }
      const std::string bytes = exchange->take();
      error_code error;
      lowest().expires_after(server_.config().write_timeout);
      co_await asio::async_write(stream_, asio::buffer(bytes),
                                 asio::redirect_error(use_awaitable, error));
      record.bytes += bytes.size();
      if (error) {
        exchange->lose();
      }
    }
    lowest().expires_never();
    while (watching_) {  // it must not meet the next request
      lowest().socket().cancel();
      watch_pause_.cancel();
      co_await rest(exchange->wake(), std::chrono::milliseconds(1));
    }
  }

  // Tells the exchange when the client leaves.
  void watch(const std::shared_ptr<Exchange>& exchange) {
    watching_ = true;
    asio::co_spawn(
        lowest().get_executor(),
        [self = this->shared_from_this(), exchange] { return self->watch_until_end(exchange); },
        asio::detached);
  }

  asio::awaitable<void> watch_until_end(std::shared_ptr<Exchange> exchange) {
    const auto over = [&] { return exchange->gone() || (exchange->ended() && !busy(exchange)); };
    while (!over()) {
      error_code error;
      co_await lowest().socket().async_wait(tcp::socket::wait_read,
                                            asio::redirect_error(use_awaitable, error));
      if (over() || error == asio::error::operation_aborted) {
        break;
      }
      if (error || is_closed_by_peer(lowest().socket().native_handle())) {
        exchange->lose();
        break;
      }
      // The next request has come already; whether its sender stays is to be asked again.
      co_await rest(watch_pause_, std::chrono::milliseconds(100));
    }
    watching_ = false;
    exchange->wake().cancel();
  }

  static bool busy(const std::shared_ptr<Exchange>& exchange) { return exchange->has_unsent(); }

  static asio::awaitable<void> rest(asio::steady_timer& timer, std::chrono::milliseconds most) {
    error_code error;
    timer.expires_after(most);
    co_await timer.async_wait(asio::redirect_error(use_awaitable, error));
  }

  // A client that is still sending would be reset, and never read our answer, if we closed at once.
  asio::awaitable<void> close() {
    error_code error;
    lowest().expires_after(std::chrono::seconds(2));
    if constexpr (kTls) {
      co_await stream_.async_shutdown(asio::redirect_error(use_awaitable, error));
    }
    lowest().socket().shutdown(tcp::socket::shutdown_send, error);
    std::string waste(std::size_t{1} << 16, '\0');
    while (lingering_ && !error) {
      co_await lowest().async_read_some(asio::buffer(waste),
                                        asio::redirect_error(use_awaitable, error));
    }
    lowest().close();
  }

  HttpServer::Impl& server_;
  Stream stream_;
  beast::flat_buffer buffer_;
  asio::steady_timer watch_pause_{lowest().get_executor()};
  std::string client_;
  bool idle_ = false;       // waits for the first byte of a request
  bool watching_ = false;   // watch_until_end() runs
  bool lingering_ = false;  // a request was refused before it was read
};

}  // namespace

HttpServer::Impl::Impl(const HttpConfig& config, HttpHandler handler, Done done)
    : config_(config),
      handler_(std::move(handler)),
      done_(std::move(done)),
      context_(config.threads),
      acceptor_(asio::make_strand(context_)) {
  load_tls();
  listen();
  asio::co_spawn(
      acceptor_.get_executor(), [this] { return accept_all(); }, asio::detached);
  for (int i = 0; i < config.threads; ++i) {
    threads_.emplace_back([this] { context_.run(); });
  }
}

void HttpServer::Impl::stop() {
  context_.stop();
  for (std::thread& thread : std::exchange(threads_, {})) {
    thread.join();
  }
}

void HttpServer::Impl::load_tls() {
  require(config_.tls_cert.empty() == config_.tls_key.empty(),
          "--tls-cert and --tls-key go together");
  if (config_.tls_cert.empty()) {
    return;
  }
  tls_.emplace(asio::ssl::context::tls_server);
  tls_->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_tlsv1 |
                    asio::ssl::context::no_tlsv1_1);
  error_code error;
  tls_->use_certificate_chain_file(config_.tls_cert, error);
  require(!error, "--tls-cert {}: {}", config_.tls_cert, error.message());
  tls_->use_private_key_file(config_.tls_key, asio::ssl::context::pem, error);
  require(!error, "--tls-key {}: {}", config_.tls_key, error.message());
}

void HttpServer::Impl::listen() {
  error_code error;
  tcp::resolver resolver(context_);
  const auto found =
      resolver.resolve(config_.host, std::to_string(config_.port), tcp::resolver::passive, error);
  require(!error && !found.empty(), "--host {}: {}", config_.host, error.message());
  const tcp::endpoint endpoint = found.begin()->endpoint();
  const auto check = [&] {
    require(!error, "cannot listen on {} port {}: {}", config_.host, config_.port, error.message());
  };
  acceptor_.open(endpoint.protocol(), error);
  check();
  acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  acceptor_.bind(endpoint, error);
  check();
  acceptor_.listen(asio::socket_base::max_listen_connections, error);
  check();
}

asio::awaitable<void> HttpServer::Impl::accept_all() {
  asio::steady_timer pause(acceptor_.get_executor());
  while (!draining_) {
    error_code error;
    tcp::socket socket = co_await acceptor_.async_accept(
        asio::make_strand(context_), asio::redirect_error(use_awaitable, error));
    if (!error) {
      serve(std::move(socket));
    } else if (error == asio::error::operation_aborted || !acceptor_.is_open()) {
      break;
    } else {  // no file descriptors, perhaps: they come back
      pause.expires_after(std::chrono::milliseconds(50));
      co_await pause.async_wait(asio::redirect_error(use_awaitable, error));
    }
  }
}

void HttpServer::Impl::serve(tcp::socket socket) {
  error_code error;
  if (connections_ >= config_.max_connections) {
    socket.close(error);
    return;
  }
  socket.set_option(tcp::no_delay(true), error);
  const auto start = [this](auto stream) {
    const auto connection =
        std::make_shared<Connection<decltype(stream)>>(*this, std::move(stream));
    enter(connection);
    connection->start();
  };
  beast::tcp_stream stream(std::move(socket));
  if (tls_) {
    start(beast::ssl_stream<beast::tcp_stream>(std::move(stream), *tls_));
  } else {
    start(std::move(stream));
  }
}

void HttpServer::Impl::enter(const std::shared_ptr<AnyConnection>& connection) {
  const std::lock_guard lock(mutex_);
  open_.insert(connection);
  ++connections_;
}

void HttpServer::Impl::leave() {
  const std::lock_guard lock(mutex_);
  std::erase_if(open_, [](const auto& weak) { return weak.expired(); });
  --connections_;
}

void HttpServer::Impl::drain() {
  draining_ = true;
  asio::post(acceptor_.get_executor(), [this] {
    error_code error;
    acceptor_.close(error);
  });
  std::vector<std::shared_ptr<AnyConnection>> connections;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& weak : open_) {
      connections.push_back(weak.lock());
    }
  }
  for (const auto& connection : connections) {
    if (connection) {
      connection->close_if_idle();
    }
  }
}

HttpServer::HttpServer(const HttpConfig& config, HttpHandler handler, Done done)
    : impl_(std::make_unique<Impl>(config, std::move(handler), std::move(done))) {}
HttpServer::~HttpServer() = default;
int HttpServer::port() const {
  return impl_->port();
}
int HttpServer::connections() const {
  return impl_->connections();
}
void HttpServer::drain() {
  impl_->drain();
}
void HttpServer::stop() {
  impl_->stop();
}

}  // namespace winnow::server
