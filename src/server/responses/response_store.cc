#include "server/responses/response_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <utility>

#include "checkpoint/json_text.h"

namespace winnow::server {

void ResponseStore::put(StoredResponse response) {
  if (files_) {
    files_->put(response);
    return;
  }
  const std::size_t bytes = json_text(response.response).size() + json_text(response.input).size() +
                            json_text(response.messages).size();
  auto shared = std::make_shared<const StoredResponse>(std::move(response));
  const std::lock_guard lock(mutex_);
  entries_.push_front({std::move(shared), bytes});
  bytes_ += bytes;
  while (bytes_ > most_bytes_) {
    bytes_ -= entries_.back().bytes;
    entries_.pop_back();
  }
}

std::list<ResponseStore::Entry>::iterator ResponseStore::position(std::string_view id) {
  return std::ranges::find_if(entries_,
                              [&](const Entry& entry) { return entry.response->id == id; });
}

std::shared_ptr<const StoredResponse> ResponseStore::find(std::string_view id) {
  if (files_) {
    auto read = files_->find(id);
    return read ? std::make_shared<const StoredResponse>(std::move(*read)) : nullptr;
  }
  const std::lock_guard lock(mutex_);
  const auto found = position(id);
  if (found == entries_.end()) {
    return nullptr;
  }
  entries_.splice(entries_.begin(), entries_, found);
  return found->response;
}

bool ResponseStore::erase(std::string_view id) {
  if (files_) {
    return files_->erase(id);
  }
  const std::lock_guard lock(mutex_);
  const auto found = position(id);
  if (found == entries_.end()) {
    return false;
  }
  bytes_ -= found->bytes;
  entries_.erase(found);
  return true;
}

void ResponseStore::flush() {
  if (files_) {
    files_->flush();
  }
}

std::string new_response_id() {
  std::random_device random;
  std::string id = "resp_";
  for (int i = 0; i < 4; ++i) {
    id += fmt::format("{:08x}", random());
  }
  return id;
}

}  // namespace winnow::server
