#include "hub/http_client.h"

#include <curl/curl.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <thread>
#include <utility>

#include "winnow/version.h"

namespace winnow::hub {
namespace {

constexpr int kMostRedirects = 10;
constexpr std::size_t kLargestBody = 64 << 20;    // without a sink: lists of files, messages
constexpr std::uint64_t kMostSkipped = 64 << 20;  // of files that a server sends only as a whole
constexpr long kConnectSeconds = 15;
constexpr long kStallSeconds = 30;

// curl must be initialised once, before any thread uses it.
void initialise_curl() {
  static const CURLcode code = curl_global_init(CURL_GLOBAL_DEFAULT);
  require(code == CURLE_OK, "libcurl: {}", curl_easy_strerror(code));
}

std::string part_of(CURLU* url, CURLUPart part) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, CURLU_DEFAULT_PORT) != CURLUE_OK) {
    return "";
  }
  const std::string result = text;
  curl_free(text);
  return result;
}

/// "https://host:443"; empty if the text is no URL.
std::string origin_of(const std::string& url) {
  const std::unique_ptr<CURLU, void (*)(CURLU*)> parsed(curl_url(), curl_url_cleanup);
  if (curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK) {
    return "";
  }
  std::string host = part_of(parsed.get(), CURLUPART_HOST);
  std::ranges::transform(host, host.begin(), [](unsigned char c) { return std::tolower(c); });
  return fmt::format("{}://{}:{}", part_of(parsed.get(), CURLUPART_SCHEME), host,
                     part_of(parsed.get(), CURLUPART_PORT));
}

/// The value of the header Range; empty: the whole file.
std::string range_of(const HttpRequest& request) {
  if (request.count > 0) {
    return fmt::format("bytes={}-{}", request.from, request.from + request.count - 1);
  }
  return request.from > 0 ? fmt::format("bytes={}-", request.from) : "";
}

/// Whether another attempt would fail in the same way (certificates, URLs).
bool is_lasting(CURLcode code) {
  constexpr std::array kLasting{CURLE_UNSUPPORTED_PROTOCOL,     CURLE_URL_MALFORMAT,
                                CURLE_PEER_FAILED_VERIFICATION, CURLE_SSL_CACERT_BADFILE,
                                CURLE_SSL_CERTPROBLEM,          CURLE_OUT_OF_MEMORY};
  return std::ranges::find(kLasting, code) != kLasting.end();
}

bool may_be_connected(CURLcode code) {
  return code != CURLE_COULDNT_RESOLVE_HOST && code != CURLE_COULDNT_RESOLVE_PROXY &&
         code != CURLE_COULDNT_CONNECT;
}

}  // namespace

std::string HttpResponse::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

// Data that curl's callbacks share with send_once().
struct HttpClient::Exchange {
  CURL* handle = nullptr;
  const HttpRequest& request;
  const BodySink& sink;
  const std::atomic<bool>& stop;
  HttpResponse response = {};
  std::exception_ptr failure = nullptr;
  std::uint64_t come = 0;  // bytes of the body
  bool enough = false;     // more than the request counts have come
  std::unique_ptr<curl_slist, void (*)(curl_slist*)> headers{nullptr, curl_slist_free_all};
  std::array<char, CURL_ERROR_SIZE> message{};

  static std::size_t take_header(char* data, std::size_t /*one*/, std::size_t size, void* self) {
    static_cast<Exchange*>(self)->add_header(std::string_view(data, size));
    return size;
  }

  static std::size_t take_body(char* data, std::size_t /*one*/, std::size_t size, void* self) {
    auto& exchange = *static_cast<Exchange*>(self);
    try {
      exchange.add_body(exchange.counted(std::as_bytes(std::span(data, size))));
      return exchange.enough ? 0 : size;
    } catch (...) {
      exchange.failure = std::current_exception();
      return 0;
    }
  }

  static int show_progress(void* self, curl_off_t /*total*/, curl_off_t /*now*/,
                           curl_off_t /*up_total*/, curl_off_t /*up*/) {
    return static_cast<Exchange*>(self)->stop ? 1 : 0;
  }

  void add_header(std::string_view line) {
    if (line.starts_with("HTTP/")) {  // after "100 Continue", or a proxy's response
      response.headers.clear();
    }
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) {
      return;
    }
    std::string name(line.substr(0, colon));
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
    std::string_view value = line.substr(colon + 1);
    const std::size_t begin = std::min(value.find_first_not_of(" \t\r\n"), value.size());
    const std::size_t end = value.find_last_not_of(" \t\r\n") + 1;
    response.headers[name] = begin < end ? value.substr(begin, end - begin) : std::string_view();
  }

  /// The part of the next `bytes` that the request wants.
  std::span<const std::byte> counted(std::span<const std::byte> bytes) {
    curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &response.status);
    if (request.count == 0 || (response.status != 200 && response.status != 206)) {
      return bytes;
    }
    const std::uint64_t begin = response.status == 200 ? request.from : 0;
    require(begin <= kMostSkipped,
            "{}: the server ignores ranges, and would send {} bytes before those that are needed",
            response.url, begin);
    const std::uint64_t at = std::exchange(come, come + bytes.size());
    const std::uint64_t end = begin + request.count;
    enough = come > end;
    const std::size_t first = std::clamp<std::uint64_t>(begin, at, come) - at;
    const std::size_t last = std::clamp<std::uint64_t>(end, at, come) - at;
    return bytes.subspan(first, last - first);
  }

  void add_body(std::span<const std::byte> bytes) {
    if (sink && (response.status == 200 || response.status == 206)) {
      sink(response, bytes);
      return;
    }
    require(response.body.size() + bytes.size() <= kLargestBody, "{}: the answer is too large",
            response.url);
    response.body.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }

  void add_request_header(const std::string& line) {
    headers.reset(curl_slist_append(headers.release(), line.c_str()));
  }
};

HttpClient::HttpClient(const Environment& environment, const std::atomic<bool>& stop)
    : environment_(environment),
      stop_(stop),
      origin_(origin_of(environment.endpoint)),
      handle_((initialise_curl(), curl_easy_init()), curl_easy_cleanup) {
  require(handle_ != nullptr, "libcurl cannot be used");
  require(!origin_.empty(), "HF_ENDPOINT: {} is not a URL", environment.endpoint);
}

HttpClient::~HttpClient() = default;

bool HttpClient::may_have_token(const std::string& url) const {
  return !environment_.token.empty() && origin_of(url) == origin_;
}

void HttpClient::set_options(const HttpRequest& request, Exchange& exchange) {
  CURL* const handle = handle_.get();
  curl_easy_reset(handle);  // keeps open connections
  exchange.handle = handle;
  exchange.add_request_header("Accept-Encoding: identity");
  if (may_have_token(request.url)) {
    exchange.add_request_header("Authorization: Bearer " + environment_.token);
  }
  if (const std::string range = range_of(request); !range.empty()) {
    exchange.add_request_header("Range: " + range);
  }
  curl_easy_setopt(handle, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(handle, CURLOPT_NOBODY, request.head ? 1L : 0L);
  if (!request.json.empty()) {
    exchange.add_request_header("Content-Type: application/json");
    exchange.add_request_header("Expect:");  // send the body without "100-continue"
    curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE,
                     static_cast<curl_off_t>(request.json.size()));
    curl_easy_setopt(handle, CURLOPT_POSTFIELDS, request.json.data());
  }
  curl_easy_setopt(handle, CURLOPT_HTTPHEADER, exchange.headers.get());
  curl_easy_setopt(handle, CURLOPT_USERAGENT, "winnow/" WINNOW_VERSION);
  curl_easy_setopt(handle, CURLOPT_NETRC, static_cast<long>(CURL_NETRC_IGNORED));
  curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  if (request.seconds > 0.0) {
    curl_easy_setopt(handle, CURLOPT_TIMEOUT_MS,
                     std::max(1L, static_cast<long>(request.seconds * 1e3)));
  } else {
    curl_easy_setopt(handle, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(handle, CURLOPT_LOW_SPEED_TIME, kStallSeconds);
  }
  curl_easy_setopt(handle, CURLOPT_BUFFERSIZE, 256L << 10);
  curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, exchange.message.data());
  curl_easy_setopt(handle, CURLOPT_HEADERFUNCTION, &Exchange::take_header);
  curl_easy_setopt(handle, CURLOPT_HEADERDATA, &exchange);
  curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, &Exchange::take_body);
  curl_easy_setopt(handle, CURLOPT_WRITEDATA, &exchange);
  curl_easy_setopt(handle, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(handle, CURLOPT_XFERINFOFUNCTION, &Exchange::show_progress);
  curl_easy_setopt(handle, CURLOPT_XFERINFODATA, &exchange);
  if (!environment_.certificates.empty()) {
    curl_easy_setopt(handle, CURLOPT_CAINFO, environment_.certificates.c_str());
  }
}

HttpResponse HttpClient::send_once(const HttpRequest& request, const BodySink& sink) {
  Exchange exchange{.request = request, .sink = sink, .stop = stop_};
  exchange.response.url = request.url;
  set_options(request, exchange);
  const CURLcode code = curl_easy_perform(handle_.get());
  if (stop_) {
    throw Stopped();
  }
  if (exchange.failure) {
    std::rethrow_exception(exchange.failure);
  }
  if (code != CURLE_OK && !exchange.enough) {
    const char* const said =
        exchange.message.front() != '\0' ? exchange.message.data() : curl_easy_strerror(code);
    const std::string message = fmt::format("{}: {}", origin_of(request.url), said);
    if (is_lasting(code)) {
      throw Error(message);
    }
    throw TransferError(message, may_be_connected(code));
  }
  curl_easy_getinfo(handle_.get(), CURLINFO_RESPONSE_CODE, &exchange.response.status);
  char* location = nullptr;
  curl_easy_getinfo(handle_.get(), CURLINFO_REDIRECT_URL, &location);
  exchange.response.location = location == nullptr ? "" : location;
  return std::move(exchange.response);
}

HttpResponse HttpClient::send(const HttpRequest& request, const BodySink& sink) {
  HttpRequest next = request;
  for (int redirects = 0; redirects <= kMostRedirects; ++redirects) {
    HttpResponse response = send_once(next, sink);
    if (!request.follow || response.location.empty()) {
      return response;
    }
    next.url = response.location;
  }
  fail("{}: more than {} redirects", request.url, kMostRedirects);
}

void HttpClient::wait(double seconds) const {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (Clock::now() < end) {
    if (stop_) {
      throw Stopped();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

std::string escape_path_part(const std::string& text) {
  initialise_curl();
  char* const escaped = curl_easy_escape(nullptr, text.c_str(), static_cast<int>(text.size()));
  require(escaped != nullptr, "{}: cannot be part of a URL", text);
  const std::string result = escaped;
  curl_free(escaped);
  return result;
}

}  // namespace winnow::hub
