#include "hub/header_download.h"

#include <algorithm>
#include <fstream>
#include <string>

#include "base/error.h"
#include "base/mapped_file.h"
#include "checkpoint/weight_header.h"

namespace winnow::hub {
namespace {

constexpr std::uint64_t kFirstBytes = 256 << 10;  // holds the header of most files in safetensors
constexpr std::uint64_t kMostAtOnce = 32 << 20;
constexpr std::uint64_t kLargestHeader = 512 << 20;

class HeaderDownload {
 public:
  HeaderDownload(HttpClient& client, const RemoteRepository& repository, const RemoteFile& file,
                 std::filesystem::path target, std::atomic<std::int64_t>& done)
      : client_(client),
        repository_(repository),
        file_(file),
        target_(std::move(target)),
        done_(done) {}

  void run() {
    write(0, read_start());
    std::error_code error;
    std::filesystem::resize_file(target_, file_.size, error);
    require(!error, "{}: cannot give it {} bytes: {}", target_.string(), file_.size,
            error.message());
    const MappedFile mapped(target_);
    for (const auto values : describing_values(mapped.bytes(), file_.name)) {
      const auto begin = static_cast<std::uint64_t>(values.data() - mapped.bytes().data());
      write(begin, read(begin, values.size()));
    }
  }

 private:
  /// The file's first bytes, at least its header. Whether the header is right is for others to say.
  std::string read_start() {
    std::string start = read(0, std::min(kFirstBytes, file_.size));
    while (start.size() < file_.size) {
      const std::uint64_t wanted = weight_header_size(std::as_bytes(std::span(start)), file_.name)
                                       .value_or(2 * start.size());
      if (wanted <= start.size()) {
        break;
      }
      require(wanted <= kLargestHeader, "{}: its header does not end within {} bytes", file_.name,
              kLargestHeader);
      const std::uint64_t missing = std::min(wanted, file_.size) - start.size();
      start += read(start.size(), std::min(missing, kMostAtOnce));
    }
    return start;
  }

  std::string read(std::uint64_t begin, std::uint64_t count) {
    if (count == 0) {
      return "";
    }
    HttpResponse response = RemoteRepository::send_patiently(
        client_, {.url = file_.url, .from = begin, .count = count});
    if (response.status != 200 && response.status != 206) {
      repository_.reject(response, file_.name);
    }
    const std::string range = response.header("content-range");
    const bool begins =
        response.status == 200 || range.starts_with(fmt::format("bytes {}-", begin));
    require(begins && response.body.size() == count,
            "{}: {} bytes from {} on were asked for, and the server sends {} ({})", file_.name,
            count, begin, response.body.size(), range.empty() ? "others" : range);
    done_ += static_cast<std::int64_t>(count);
    return std::move(response.body);
  }

  void write(std::uint64_t begin, const std::string& bytes) const {
    // Without `in` the file would be emptied.
    std::fstream out(target_, begin == 0 ? std::ios::binary | std::ios::out | std::ios::trunc
                                         : std::ios::binary | std::ios::in | std::ios::out);
    out.seekp(static_cast<std::streamoff>(begin));
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    out.flush();
    require_system(out.good(), "{}: cannot write", target_.string());
  }

  HttpClient& client_;
  const RemoteRepository& repository_;
  const RemoteFile& file_;
  std::filesystem::path target_;
  std::atomic<std::int64_t>& done_;
};

}  // namespace

void download_header(HttpClient& client, const RemoteRepository& repository, const RemoteFile& file,
                     const RepositoryCache& cache, std::atomic<std::int64_t>& done) {
  const FileLock lock(cache.lock_file(file.etag));
  if (!lock.holds()) {
    return;  // another thread makes the blob of an equal file
  }
  HeaderDownload(client, repository, file, cache.blob(file.etag), done).run();
}

}  // namespace winnow::hub
