// An HTTP client for the Hub and for other winnow servers.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "base/error.h"
#include "hub/environment.h"

namespace winnow::hub {

/// The connection failed or broke: a retry may succeed.
class TransferError : public Error {
 public:
  TransferError(const std::string& message, bool reached) : Error(message), reached_(reached) {}
  /// Whether there was a connection.
  [[nodiscard]] bool reached() const { return reached_; }

 private:
  bool reached_;
};

/// The request was cancelled because others failed, or because the user wants to stop.
class Stopped : public std::exception {};

struct HttpRequest {
  std::string url;
  bool head = false;        // request the headers alone
  std::uint64_t from = 0;   // the first byte to send
  std::uint64_t count = 0;  // bytes to take from there, whatever the server sends; 0: all
  bool follow = true;       // redirects
  std::string json = {};    // the body of a POST; empty: none
  double seconds = 0.0;     // for the whole answer; 0: any time, while bytes come
};

struct HttpResponse {
  long status = 0;
  std::string url;                             // the URL of the last request
  std::string location;                        // of a redirect, absolute
  std::map<std::string, std::string> headers;  // by names in lower case
  std::string body;                            // the body, if no sink took it

  /// The header `name`, or "".
  [[nodiscard]] std::string header(const std::string& name) const;
};

/// Takes a body piece by piece, with the response so far. send() passes on its exceptions.
using BodySink = std::function<void(const HttpResponse&, std::span<const std::byte>)>;

/// One connection, kept open between requests; for one thread. The token is sent only to the
/// endpoint's scheme, host and port, never to a redirect's target elsewhere.
class HttpClient {
 public:
  /// Both must outlive this. Setting `stop` ends a request within a second.
  HttpClient(const Environment& environment, const std::atomic<bool>& stop);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  /// `sink` takes the bodies of responses with status 200 and 206. If the request counts bytes, a
  /// server that ignores ranges (status 200) is read up to the last one, and not further; Error if
  /// these are too many. Throws TransferError, Stopped, and Error for failures that another attempt
  /// would not change.
  HttpResponse send(const HttpRequest& request, const BodySink& sink = {});
  /// Sleeps; throws Stopped if `stop` is set meanwhile.
  void wait(double seconds) const;

 private:
  struct Exchange;

  HttpResponse send_once(const HttpRequest& request, const BodySink& sink);
  void set_options(const HttpRequest& request, Exchange& exchange);
  [[nodiscard]] bool may_have_token(const std::string& url) const;

  const Environment& environment_;
  const std::atomic<bool>& stop_;
  std::string origin_;
  std::unique_ptr<void, void (*)(void*)> handle_;
};

/// Escapes `text` as one segment of a URL's path, including its slashes.
std::string escape_path_part(const std::string& text);

}  // namespace winnow::hub
