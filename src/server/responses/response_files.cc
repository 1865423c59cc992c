#include "server/responses/response_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "base/error.h"
#include "checkpoint/atomic_file.h"
#include "checkpoint/json_text.h"
#include "server/http/api_error.h"
#include "server/responses/response_store.h"

namespace winnow::server {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Whether new_response_id() could have made this id: no other name may become a file name.
bool is_id(std::string_view id) {
  constexpr std::string_view kBegin = "resp_";
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return id.starts_with(kBegin) && id.size() == kBegin.size() + 32 &&
         std::ranges::all_of(id.substr(kBegin.size()), is_digit);
}

std::optional<StoredResponse> stored_response_in(std::string_view id, const std::string& text) {
  Json content = json_or_discarded<Json>(text);
  if (!content.is_object() || !content.contains("response") || !content.contains("input") ||
      !content.contains("messages")) {
    return std::nullopt;
  }
  return StoredResponse{std::string(id), std::move(content["response"]),
                        std::move(content["input"]), std::move(content["messages"])};
}

// The limit for files waiting to be written, and for bytes written between two scans of
// the directory.
std::size_t sixteenth_of(std::size_t most_bytes) {
  return most_bytes / 16;
}

}  // namespace

ResponseFiles::ResponseFiles(fs::path directory, std::size_t most_bytes, Warn warn)
    : directory_(std::move(directory)), most_bytes_(most_bytes), warn_(std::move(warn)) {
  std::error_code failed;
  if (fs::create_directories(directory_, failed)) {
    fs::permissions(directory_, fs::perms::owner_all, failed);  // they contain users' requests
  }
  require(fs::is_directory(directory_), "{}: cannot be made", directory_.string());
  make_room();
}

fs::path ResponseFiles::path_of(std::string_view id) const {
  return directory_ / (std::string(id) + ".json");
}

void ResponseFiles::put(const StoredResponse& response) {
  const Json content{
      {"response", response.response}, {"input", response.input}, {"messages", response.messages}};
  auto text = std::make_shared<const std::string>(dump(content));
  {
    const std::lock_guard lock(mutex_);
    if (waiting_bytes_ == 0 || waiting_bytes_ + text->size() <= sixteenth_of(most_bytes_)) {
      waiting_bytes_ += text->size();
      waiting_[response.id] = {std::move(text)};
    }
  }
  if (text) {
    warn_(
        fmt::format("{}: not written: too many wait for the disk", path_of(response.id).string()));
    return;
  }
  writer_.run([this, id = response.id] { write(id); });
}

void ResponseFiles::write(const std::string& id) {
  std::unique_lock lock(mutex_);
  const auto waiting = waiting_.find(id);
  const auto text = waiting->second.text;
  if (!waiting->second.erased) {
    lock.unlock();
    try {
      AtomicFile file(path_of(id), FileAccess::owner_only);
      file.write(*text);
      file.commit();
    } catch (const Error& error) {
      warn_(error.what());
    }
    lock.lock();
  }
  if (waiting->second.erased) {
    std::error_code failed;
    fs::remove(path_of(id), failed);
  }
  waiting_.erase(waiting);
  waiting_bytes_ -= text->size();
  lock.unlock();
  // Listing a large directory takes long, so it is done only after many bytes were written.
  bytes_unlisted_ += text->size();
  if (bytes_unlisted_ > sixteenth_of(most_bytes_)) {
    bytes_unlisted_ = 0;
    make_room();
  }
}

std::optional<StoredResponse> ResponseFiles::find(std::string_view id) const {
  if (!is_id(id)) {
    return std::nullopt;
  }
  std::unique_lock lock(mutex_);
  const auto waiting = waiting_.find(id);
  if (waiting == waiting_.end()) {
    lock.unlock();
    std::ifstream file(path_of(id));
    return stored_response_in(id, std::string{std::istreambuf_iterator<char>(file), {}});
  }
  if (waiting->second.erased) {
    return std::nullopt;
  }
  const auto text = waiting->second.text;
  lock.unlock();
  return stored_response_in(id, *text);
}

bool ResponseFiles::erase(std::string_view id) {
  if (!is_id(id)) {
    return false;
  }
  const std::lock_guard lock(mutex_);
  if (const auto waiting = waiting_.find(id); waiting != waiting_.end()) {
    return !std::exchange(waiting->second.erased, true);
  }
  std::error_code failed;
  return fs::remove(path_of(id), failed);
}

void ResponseFiles::make_room() const {
  struct File {
    fs::file_time_type written;
    fs::path path;
    std::size_t bytes;
  };
  std::vector<File> files;
  std::size_t bytes = 0;
  std::error_code gone;
  for (fs::directory_iterator at(directory_, gone), end; !gone && at != end; at.increment(gone)) {
    std::error_code failed;  // another server may have removed it
    files.push_back({at->last_write_time(failed), at->path(), 0});
    files.back().bytes = failed ? 0 : static_cast<std::size_t>(at->file_size(failed));
    bytes += failed ? 0 : files.back().bytes;
  }
  std::ranges::sort(files, {}, &File::written);
  for (auto file = files.begin(); file != files.end() && bytes > most_bytes_; ++file) {
    fs::remove(file->path, gone);
    bytes -= std::min(bytes, file->bytes);
  }
}

}  // namespace winnow::server
