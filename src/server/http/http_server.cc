#include "server/http/http_server.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <mutex>
#include <optional>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "server/http/connection.h"
#include "server/http/exchange.h"
#include "server/http/seldom_warning.h"
#include "server/http/threads_elsewhere.h"

namespace winnow::server {
namespace {

namespace asio = boost::asio;
using asio::use_awaitable;
using asio::ip::tcp;
using boost::system::error_code;
using Done = std::function<void(const HttpRecord&)>;
using Warn = std::function<void(const std::string& message)>;

constexpr rlim_t kOtherFiles = 256;            // besides connections
constexpr std::size_t kSpareConnections = 64;  // above the limit, for one request each
constexpr std::chrono::seconds kBetweenWarnings{10};
constexpr std::chrono::seconds kIdle{1};  // after which a connection may close to admit another
// Time after which the engine counts as idle, so threads may use its core.
constexpr std::chrono::seconds kEngineRests{1};

// Every connection takes a file descriptor; a process may raise its own limit.
void allow_connections(int count, const Warn& warn) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return;
  }
  const rlim_t wanted = static_cast<rlim_t>(count) + kSpareConnections + kOtherFiles;
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(limit.rlim_max, wanted));
  ::setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur < wanted) {
    warn(
        fmt::format("--max-connections {}: they need {} open files, and this process may have {} "
                    "(ulimit -Hn, LimitNOFILE): connections beyond will not be accepted",
                    count, wanted, limit.rlim_cur));
  }
}

// Checked here because OpenSSL does not say why a file cannot be opened.
void check_readable(std::string_view flag, const std::string& path) {
  const int failure = ::access(path.c_str(), R_OK) == 0 ? 0 : errno;
  require(failure == 0, "{} {}: {}", flag, path, std::generic_category().message(failure));
}

// Removes the brackets that URLs put around an IPv6 address.
std::string without_brackets(const std::string& host) {
  return host.size() > 2 && host.front() == '[' && host.back() == ']'
             ? host.substr(1, host.size() - 2)
             : host;
}

// Makes `acceptor` listen; returns whether it does.
bool open(tcp::acceptor& acceptor, const tcp::endpoint& endpoint, error_code& failure) {
  acceptor.open(endpoint.protocol(), failure);
  if (!failure) {
    error_code ignored;
    acceptor.set_option(tcp::acceptor::reuse_address(true), ignored);
    acceptor.bind(endpoint, failure);
  }
  if (!failure) {
    acceptor.listen(asio::socket_base::max_listen_connections, failure);
  }
  return !failure;
}

}  // namespace

class HttpServer::Impl : public ConnectionOwner {
 public:
  Impl(const HttpConfig& config, Gate gate, Teller tell, HttpHandler handler, Done done, Warn warn);
  ~Impl() override { stop(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  [[nodiscard]] const HttpConfig& config() const override { return config_; }
  [[nodiscard]] bool draining() const override { return draining_; }
  bool promote(const Connection& connection) override;
  std::optional<ApiError> refuse(const HttpRequest& head, bool spare) override;
  void tell(const HttpRequest& request, const ApiError& refusal,
            const std::shared_ptr<Exchange>& exchange) override {
    tell_(request, refusal, exchange);
  }
  void handle(HttpRequest request, const std::shared_ptr<Exchange>& exchange) override;
  void record(const HttpRecord& record) override { done_(record); }
  void meet_plain_http() override { plain_http_.happened(); }
  void forget(const Connection& connection) override;

  [[nodiscard]] int port() const { return acceptors_.front().local_endpoint().port(); }
  [[nodiscard]] int connections() const;
  [[nodiscard]] std::int64_t refused_connections() const { return refused_.total(); }
  void run(std::function<void()> work) {
    threads_.leave_callers_core();
    asio::post(work_strand_, std::move(work));
  }
  /// Separate from the constructor: the threads need a complete object.
  void start();
  void drain();
  /// Closes connections that have waited for a request at least this long.
  void close_idle(std::chrono::milliseconds wait);
  [[nodiscard]] std::vector<std::shared_ptr<Connection>> open_connections() const;
  void stop();

 private:
  void listen();
  void load_tls();
  asio::awaitable<void> accept_all(tcp::acceptor& acceptor);
  void serve(tcp::socket socket);
  [[nodiscard]] bool is_full() const;
  bool add(const std::shared_ptr<Connection>& connection, bool spare);

  HttpConfig config_;
  Gate gate_;
  Teller tell_;
  HttpHandler handler_;
  Done done_;
  SeldomWarning refused_;
  SeldomWarning not_accepted_;
  SeldomWarning plain_http_;
  mutable std::mutex mutex_;  // of open_ and spare_
  std::unordered_map<const Connection*, std::weak_ptr<Connection>> open_;
  std::unordered_set<const Connection*> spare_;  // a subset of these
  std::atomic<bool> draining_ = false;
  std::optional<asio::ssl::context> tls_;
  asio::io_context context_;   // owns the connections, so it is destroyed before what they use
  asio::io_context handling_;  // of requests with bodies, beside the threads that send and receive
  asio::executor_work_guard<asio::io_context::executor_type> handling_goes_on_;
  std::vector<tcp::acceptor> acceptors_;
  asio::strand<asio::io_context::executor_type> work_strand_;
  ThreadsElsewhere threads_;
};

HttpServer::Impl::Impl(const HttpConfig& config, Gate gate, Teller tell, HttpHandler handler,
                       Done done, Warn warn)
    : config_(config),
      gate_(std::move(gate)),
      tell_(std::move(tell)),
      handler_(std::move(handler)),
      done_(std::move(done)),
      refused_(kBetweenWarnings,
               [warn, most = config.max_connections](std::int64_t times, const std::string&) {
                 warn(fmt::format("connections refused: {}; {} are open (--max-connections)", times,
                                  most));
               }),
      not_accepted_(kBetweenWarnings,
                    [warn](std::int64_t, const std::string& why) {
                      warn(fmt::format("cannot accept connections: {}", why));
                    }),
      plain_http_(kBetweenWarnings,
                  [warn](std::int64_t times, const std::string&) {
                    warn(fmt::format("requests in plain HTTP on the port for TLS: {}", times));
                  }),
      context_(config.threads),
      handling_(config.threads),
      handling_goes_on_(handling_.get_executor()),
      work_strand_(asio::make_strand(context_)) {
  allow_connections(config.max_connections, warn);
  load_tls();
  listen();
}

void HttpServer::Impl::start() {
  for (tcp::acceptor& acceptor : acceptors_) {
    asio::co_spawn(
        acceptor.get_executor(), [this, &acceptor] { return accept_all(acceptor); },
        asio::detached);
  }
  for (int i = 0; i < config_.threads; ++i) {
    threads_.start("http", [this] { context_.run(); });
    threads_.start("handler", [this] { handling_.run(); });
  }
}

void HttpServer::Impl::stop() {
  context_.stop();
  handling_.stop();
  threads_.join();
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
  check_readable("--tls-cert", config_.tls_cert);
  tls_->use_certificate_chain_file(config_.tls_cert, error);
  require(!error, "--tls-cert {}: is no certificate in PEM ({})", config_.tls_cert,
          error.message());
  check_readable("--tls-key", config_.tls_key);
  tls_->use_private_key_file(config_.tls_key, asio::ssl::context::pem, error);
  require(!error, "--tls-key {}: is no private key in PEM that goes with the certificate ({})",
          config_.tls_key, error.message());
}

// Listens on all addresses of the host: localhost has one for IPv4 and one for IPv6. Addresses that
// this machine lacks are skipped if another one works.
void HttpServer::Impl::listen() {
  error_code error;
  tcp::resolver resolver(context_);
  const auto found = resolver.resolve(without_brackets(config_.host), std::to_string(config_.port),
                                      tcp::resolver::passive, error);
  require(!error && !found.empty(), "--host {}: {}", config_.host, error.message());
  std::vector<tcp::endpoint> endpoints;
  const auto add = [&](const tcp::endpoint& endpoint) {
    if (std::ranges::find(endpoints, endpoint) == endpoints.end()) {
      endpoints.push_back(endpoint);
    }
  };
  for (const auto& entry : found) {
    add(entry.endpoint());
  }
  if (config_.host == "localhost") {  // both, regardless of /etc/hosts (RFC 6761)
    const auto port = static_cast<std::uint16_t>(config_.port);
    add({asio::ip::address_v4::loopback(), port});
    add({asio::ip::address_v6::loopback(), port});
  }
  error_code refusal;
  for (tcp::endpoint endpoint : endpoints) {
    if (!acceptors_.empty()) {
      endpoint.port(static_cast<std::uint16_t>(port()));
    }
    tcp::acceptor acceptor(asio::make_strand(context_));
    if (error_code failure; open(acceptor, endpoint, failure)) {
      acceptors_.push_back(std::move(acceptor));
    } else if (failure != asio::error::address_family_not_supported &&
               failure != boost::system::errc::address_not_available) {
      require(false, "cannot listen on {} port {}: {}{}", config_.host, endpoint.port(),
              failure.message(),
              failure == asio::error::address_in_use ? "; --port chooses another" : "");
    } else {
      refusal = failure;
    }
  }
  require(!acceptors_.empty(), "cannot listen on {} port {}: {}", config_.host, config_.port,
          refusal.message());
}

asio::awaitable<void> HttpServer::Impl::accept_all(tcp::acceptor& acceptor) {
  asio::steady_timer pause(acceptor.get_executor());
  while (!draining_) {
    error_code error;
    tcp::socket socket = co_await acceptor.async_accept(asio::make_strand(context_),
                                                        asio::redirect_error(use_awaitable, error));
    if (!error) {
      serve(std::move(socket));
    } else if (error == asio::error::operation_aborted || !acceptor.is_open()) {
      break;
    } else {  // probably out of file descriptors: some become free later
      not_accepted_.happened(error.message());
      close_idle(kIdle);
      pause.expires_after(std::chrono::milliseconds(50));
      co_await pause.async_wait(asio::redirect_error(use_awaitable, error));
    }
  }
}

void HttpServer::Impl::serve(tcp::socket socket) {
  error_code error;
  socket.set_option(tcp::no_delay(true), error);
  bool spare = false;
  {
    const std::lock_guard lock(mutex_);
    spare = is_full();
  }
  auto stream = make_stream(std::move(socket), tls_ ? &*tls_ : nullptr);
  const auto connection = std::make_shared<Connection>(*this, std::move(stream), spare);
  if (spare) {
    close_idle(kIdle);  // there may be room by the time its request arrives
  }
  if (add(connection, spare)) {
    connection->start();
  } else {
    refused_.happened();
  }
}

// Call with the mutex held.
bool HttpServer::Impl::is_full() const {
  return open_.size() - spare_.size() >= static_cast<std::size_t>(config_.max_connections);
}

// False if there are too many spare connections as well.
bool HttpServer::Impl::add(const std::shared_ptr<Connection>& connection, bool spare) {
  const std::lock_guard lock(mutex_);
  if (spare && spare_.size() >= kSpareConnections) {
    return false;
  }
  open_[connection.get()] = connection;
  if (spare) {
    spare_.insert(connection.get());
  }
  return true;
}

bool HttpServer::Impl::promote(const Connection& connection) {
  const std::lock_guard lock(mutex_);
  return !is_full() && spare_.erase(&connection) > 0;
}

std::optional<ApiError> HttpServer::Impl::refuse(const HttpRequest& head, bool spare) {
  std::optional<ApiError> refusal = gate_(head, spare);
  if (spare && refusal && refusal->status() == 503) {
    refused_.happened();
  }
  return refusal;
}

int HttpServer::Impl::connections() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(open_.size());
}

void HttpServer::Impl::forget(const Connection& connection) {
  const std::lock_guard lock(mutex_);
  open_.erase(&connection);
  spare_.erase(&connection);
}

// Parsing a large body may take seconds, in which other streams and probes must go on.
void HttpServer::Impl::handle(HttpRequest request, const std::shared_ptr<Exchange>& exchange) {
  threads_.return_after(kEngineRests);
  if (request.body.empty()) {
    handler_(std::move(request), exchange);
    return;
  }
  asio::post(handling_, [this, request = std::move(request), exchange]() mutable {
    exchange->call([&] { handler_(std::move(request), exchange); });
  });
}

void HttpServer::Impl::drain() {
  draining_ = true;
  for (tcp::acceptor& acceptor : acceptors_) {
    asio::post(acceptor.get_executor(), [&acceptor] {
      error_code error;
      acceptor.close(error);
    });
  }
  for (const auto& connection : open_connections()) {
    connection->drain();
  }
}

void HttpServer::Impl::close_idle(std::chrono::milliseconds wait) {
  for (const auto& connection : open_connections()) {
    connection->close_if_idle(wait);
  }
}

std::vector<std::shared_ptr<Connection>> HttpServer::Impl::open_connections() const {
  std::vector<std::shared_ptr<Connection>> connections;
  const std::lock_guard lock(mutex_);
  for (const auto& [_, weak] : open_) {
    if (auto connection = weak.lock()) {
      connections.push_back(std::move(connection));
    }
  }
  return connections;
}

HttpServer::HttpServer(const HttpConfig& config, Gate gate, Teller tell, HttpHandler handler,
                       Done done, Warn warn)
    : impl_(std::make_unique<Impl>(config, std::move(gate), std::move(tell), std::move(handler),
                                   std::move(done), std::move(warn))) {
  impl_->start();
}
HttpServer::~HttpServer() = default;
int HttpServer::port() const {
  return impl_->port();
}
int HttpServer::connections() const {
  return impl_->connections();
}
std::int64_t HttpServer::refused_connections() const {
  return impl_->refused_connections();
}
void HttpServer::run(std::function<void()> work) {
  impl_->run(std::move(work));
}
void HttpServer::drain() {
  impl_->drain();
}
void HttpServer::stop() {
  impl_->stop();
}

}  // namespace winnow::server
