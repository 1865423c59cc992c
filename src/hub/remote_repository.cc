#include "hub/remote_repository.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "checkpoint/json.h"
#include "hub/checksum.h"
#include "hub/repository_cache.h"

namespace winnow::hub {
namespace {

constexpr double kFirstPause = 0.25;
constexpr double kLongestPause = 60.0;

/// "a/b c" -> "a/b%20c".
std::string escape_path(const std::string& path) {
  std::string escaped;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    escaped += begin == 0 ? "" : "/";
    escaped += escape_path_part(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return escaped;
}

/// An ETag without its quotes and the prefix of weak ones.
std::string plain_etag(std::string text) {
  if (text.starts_with("W/")) {
    text.erase(0, 2);
  }
  std::erase(text, '"');
  return text;
}

/// The URL of a list's next page: <URL>; rel="next".
std::string next_page(const HttpResponse& response) {
  const std::string link = response.header("link");
  const std::size_t end = link.find(">; rel=\"next\"");
  const std::size_t begin = end == std::string::npos ? end : link.rfind('<', end);
  return begin == std::string::npos ? "" : link.substr(begin + 1, end - begin - 1);
}

/// Whether a relative path stays inside its folder.
bool is_inside(const std::string& name) {
  return !name.empty() && name.front() != '/' && name.find('\0') == std::string::npos &&
         ("/" + name + "/").find("/../") == std::string::npos;
}

std::string name_of(const nlohmann::json& entry, const char* key, const std::string& where) {
  const std::string name = JsonObject(entry, where).text(key, "");
  require(is_inside(name), "{}: {}: {} is not the name of a file", where, key, in_quotes(name));
  return name;
}

}  // namespace

bool is_passing(long status) {
  return status == 408 || status == 429 || status >= 500;
}

double pause_before(int attempt, const HttpResponse* response) {
  double seconds = kFirstPause * std::exp2(attempt - 1);
  if (response != nullptr) {
    const std::string asked = response->header("retry-after");
    double value = 0.0;
    if (std::from_chars(asked.data(), asked.data() + asked.size(), value).ec == std::errc()) {
      seconds = value;
    }
  }
  return std::clamp(seconds, 0.0, kLongestPause);
}

HttpResponse RemoteRepository::send_patiently(HttpClient& client, const HttpRequest& request) {
  for (int attempt = 1;; ++attempt) {
    const bool last = attempt == kMostAttempts;
    try {
      HttpResponse response = client.send(request);
      if (last || !is_passing(response.status)) {
        return response;
      }
      client.wait(pause_before(attempt, &response));
    } catch (const TransferError& error) {
      if (last || !error.reached()) {
        throw;
      }
      client.wait(pause_before(attempt));
    }
  }
}

Listing RemoteRepository::list(HttpClient& client) const {
  const std::string url =
      fmt::format("{}/api/models/{}/revision/{}", environment_.endpoint,
                  escape_path(name_.repository), escape_path_part(name_.revision));
  const HttpResponse response = send_patiently(client, {.url = url});
  if (response.status != 200) {
    reject(response);
  }
  const nlohmann::json document = parse_json(response.body, url);
  const JsonObject info(document, url);
  Listing listing{.commit = info.text("sha", ""), .files = {}};
  require(is_commit(listing.commit), "{}: sha: expected a commit, got {}", url,
          in_quotes(listing.commit));
  const nlohmann::json* const files = info.find("siblings");
  if (files == nullptr) {
    listing.files = list_tree(client, listing.commit);
    return listing;
  }
  for (const nlohmann::json& file : *files) {
    listing.files.push_back(name_of(file, "rfilename", url));
  }
  return listing;
}

std::vector<std::string> RemoteRepository::list_tree(HttpClient& client,
                                                     const std::string& commit) const {
  std::vector<std::string> names;
  std::string url = fmt::format("{}/api/models/{}/tree/{}?recursive=true", environment_.endpoint,
                                escape_path(name_.repository), commit);
  while (!url.empty()) {
    const HttpResponse response = send_patiently(client, {.url = url});
    if (response.status != 200) {
      reject(response);
    }
    const nlohmann::json document = parse_json(response.body, url);
    require(document.is_array(), "{}: expected a list, got {}", url, described(document));
    for (const nlohmann::json& entry : document) {
      if (JsonObject(entry, url).text("type", "") == "file") {
        names.push_back(name_of(entry, "path", url));
      }
    }
    url = next_page(response);
  }
  return names;
}

RemoteFile RemoteRepository::describe(HttpClient& client, const std::string& commit,
                                      const std::string& file) const {
  HttpRequest request{.url = fmt::format("{}/{}/resolve/{}/{}", environment_.endpoint,
                                         escape_path(name_.repository), commit, escape_path(file)),
                      .head = true,
                      .follow = false};
  RemoteFile remote{.name = file, .url = request.url, .etag = {}, .size = 0};
  HttpResponse response = send_patiently(client, request);
  // A response that describes a large file redirects to its storage. Redirects of a renamed
  // repository or another server are followed instead.
  for (int redirects = 0;
       redirects < 10 && !response.location.empty() && response.header("x-linked-etag").empty();
       ++redirects) {
    request.url = response.location;
    response = send_patiently(client, request);
  }
  const bool is_linked = !response.header("x-linked-etag").empty();
  if (response.status != 200 && !is_linked) {
    reject(response, file);
  }
  remote.etag = plain_etag(response.header(is_linked ? "x-linked-etag" : "etag"));
  require(is_checksum(remote.etag),
          "{}: {}: the server states no checksum that could be checked (ETag {})", name_.repository,
          file, in_quotes(remote.etag));
  const std::string linked_size = response.header("x-linked-size");
  const std::string size = linked_size.empty() ? response.header("content-length") : linked_size;
  const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), remote.size);
  require(error == std::errc() && end == size.data() + size.size(),
          "{}: {}: the server does not say how large it is", name_.repository, file);
  return remote;
}

std::string RemoteRepository::need_access(const std::string& why) const {
  const std::string page = fmt::format("{}/{}", environment_.endpoint, name_.repository);
  if (environment_.token.empty()) {
    return fmt::format(
        "{}; if you may have it: accept its terms at {}, and set HF_TOKEN or write a token of your "
        "account to {}",
        why, page, environment_.token_source);
  }
  return fmt::format("{}, at least not for the account of the token in {}; ask for access at {}",
                     why, environment_.token_source, page);
}

void RemoteRepository::reject(const HttpResponse& response, const std::string& file) const {
  const std::string code = response.header("x-error-code");
  const std::string what = name_.repository + (file.empty() ? std::string() : ": " + file) + ": ";
  if (code == "GatedRepo") {
    fail("{}HTTP {}: {}", what, response.status, need_access("the model is gated"));
  }
  if (code == "RevisionNotFound") {
    fail("{}HTTP {}: there is no revision {}", what, response.status, in_quotes(name_.revision));
  }
  if (code == "RepoNotFound" || (response.status == 404 && file.empty()) ||
      (response.status == 401 && environment_.token.empty())) {
    throw NoSuchModel(
        fmt::format("{}HTTP {}: {}", what, response.status,
                    need_access(fmt::format("{} has no such model, or it is private or gated",
                                            environment_.endpoint))));
  }
  if (response.status == 401) {
    fail("{}HTTP 401: the token in {} is not accepted: it is wrong, or has expired", what,
         environment_.token_source);
  }
  if (response.status == 403) {
    fail("{}HTTP 403: {}", what, need_access("access is forbidden"));
  }
  const std::string said = in_quotes(response.header("x-error-message"));
  fail("{}HTTP {}{}, the server says {}", what, response.status,
       is_passing(response.status) ? ", again and again" : "", said);
}

}  // namespace winnow::hub
