// A repository of models on the Hub.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "hub/environment.h"
#include "hub/http_client.h"
#include "hub/model_name.h"

namespace winnow::hub {

struct Listing {
  std::string commit;
  std::vector<std::string> files;  // paths within the repository
};

struct RemoteFile {
  std::string name;
  std::string url;
  std::string etag;  // a checksum
  std::uint64_t size = 0;
};

/// The Hub has no such model, or hides it from this user.
class NoSuchModel : public Error {
 public:
  using Error::Error;
};

class RemoteRepository {
 public:
  /// Both must outlive this.
  RemoteRepository(const Environment& environment, const ModelName& name)
      : environment_(environment), name_(name) {}

  /// The files of the revision.
  [[nodiscard]] Listing list(HttpClient& client) const;
  /// The Hub's description of a file.
  [[nodiscard]] RemoteFile describe(HttpClient& client, const std::string& commit,
                                    const std::string& file) const;
  /// Throws Error that explains the failed `response` and says what to do.
  /// `file`: the requested file; empty: the list of files.
  [[noreturn]] void reject(const HttpResponse& response, const std::string& file = "") const;

  /// send() with retries if the connection breaks or the server is busy, but not if there was no
  /// connection at all.
  static HttpResponse send_patiently(HttpClient& client, const HttpRequest& request);

 private:
  [[nodiscard]] std::string need_access(const std::string& why) const;
  [[nodiscard]] std::vector<std::string> list_tree(HttpClient& client,
                                                   const std::string& commit) const;

  const Environment& environment_;
  const ModelName& name_;
};

/// Whether the server may soon give another answer.
bool is_passing(long status);
/// Seconds to wait before attempt `attempt` (from 1 on); `response`, if any, may set them.
double pause_before(int attempt, const HttpResponse* response = nullptr);

inline constexpr int kMostAttempts = 6;

}  // namespace winnow::hub
