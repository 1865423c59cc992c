// Stored answers of the Responses API, which later requests continue.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "server/responses/response_files.h"

namespace winnow::server {

struct StoredResponse {
  std::string id;
  nlohmann::ordered_json response;  // as it was sent
  nlohmann::ordered_json input;     // items of its request
  nlohmann::ordered_json messages;  // of the chat so far, including the answer
};

/// In memory, where the oldest are dropped first, or in files. May be used from many threads.
class ResponseStore {
 public:
  /// `files`: stores them there instead; null: in memory.
  ResponseStore(std::size_t most_bytes, std::unique_ptr<ResponseFiles> files)
      : most_bytes_(most_bytes), files_(std::move(files)) {}

  void put(StoredResponse response);
  /// Null if there is none. Shared, not copied: a long chat is large.
  [[nodiscard]] std::shared_ptr<const StoredResponse> find(std::string_view id);
  /// Returns whether it existed.
  bool erase(std::string_view id);
  /// Waits until all stored responses are in files, if there are any.
  void flush();

 private:
  struct Entry {
    std::shared_ptr<const StoredResponse> response;
    std::size_t bytes;
  };

  std::list<Entry>::iterator position(std::string_view id);

  std::size_t most_bytes_;
  std::unique_ptr<ResponseFiles> files_;
  std::mutex mutex_;
  std::size_t bytes_ = 0;
  std::list<Entry> entries_;  // most recently used first
};

/// "resp_" and a part that cannot be guessed.
std::string new_response_id();

}  // namespace winnow::server
