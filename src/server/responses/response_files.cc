#include "server/responses/response_files.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "base/error.h"
#include "checkpoint/atomic_file.h"
#include "server/http/api_error.h"
#include "server/responses/response_store.h"

namespace winnow::server {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// What new_response_id() makes: no other name is a file's.
bool is_id(std::string_view id) {
  constexpr std::string_view kBegin = "resp_";
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return id.starts_with(kBegin) && id.size() == kBegin.size() + 32 &&
         std::ranges::all_of(id.substr(kBegin.size()), is_digit);
}

}  // namespace

ResponseFiles::ResponseFiles(fs::path directory, std::size_t most_bytes, Warn warn)
    : directory_(std::move(directory)), most_bytes_(most_bytes), warn_(std::move(warn)) {
  std::error_code failed;
  if (fs::create_directories(directory_, failed)) {
    fs::permissions(directory_, fs::perms::owner_all, failed);  // they tell what was asked
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
  const std::string text = dump(content);
  try {
    AtomicFile file(path_of(response.id), FileAccess::owner_only);
    file.write(text);
    file.commit();
  } catch (const Error& error) {
    warn_(error.what());
  }
  // Listing the directory takes long where it holds many: only when much has been written.
  if (bytes_unlisted_.fetch_add(text.size()) + text.size() > most_bytes_ / 16) {
    bytes_unlisted_ = 0;
    make_room();
  }
}

std::optional<StoredResponse> ResponseFiles::find(std::string_view id) const {
  if (!is_id(id)) {
    return std::nullopt;
  }
  std::ifstream file(path_of(id));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const Json content = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!content.is_object() || !content.contains("response") || !content.contains("input") ||
      !content.contains("messages")) {
    return std::nullopt;
  }
  return StoredResponse{std::string(id), content["response"], content["input"],
                        content["messages"]};
}

bool ResponseFiles::erase(std::string_view id) {
  std::error_code failed;
  return is_id(id) && fs::remove(path_of(id), failed);
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
