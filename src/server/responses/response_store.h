// Answers of the Responses API that later requests go on with.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "server/responses/response_files.h"

namespace winnow::server {

struct StoredResponse {
  std::string id;
  nlohmann::ordered_json response;  // as it was told
  nlohmann::ordered_json input;     // items of its request
  nlohmann::ordered_json messages;  // of the chat so far, the answer among them
};

/// In memory, the oldest go first, or in files. May be used from many threads.
class ResponseStore {
 public:
  /// `files`: where they are instead; null: nowhere else.
  ResponseStore(std::size_t most_bytes, std::unique_ptr<ResponseFiles> files)
      : most_bytes_(most_bytes), files_(std::move(files)) {}

  void put(StoredResponse response);
  [[nodiscard]] std::optional<StoredResponse> find(std::string_view id);
  /// Whether there was one.
  bool erase(std::string_view id);
  /// Waits until what was put is where it shall be.
  void flush();

 private:
  struct Entry {
    StoredResponse response;
    std::size_t bytes;
  };

  std::list<Entry>::iterator position(std::string_view id);

  std::size_t most_bytes_;
  std::unique_ptr<ResponseFiles> files_;
  std::mutex mutex_;
  std::size_t bytes_ = 0;
  std::list<Entry> entries_;  // those used last come first
};

/// "resp_" and what nobody guesses.
std::string new_response_id();

}  // namespace winnow::server
