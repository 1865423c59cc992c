#include "server/kv_events/change_queue.h"

#include <span>
#include <utility>

namespace winnow::server {

void ChangeQueue::push(PrefixChange change) {
  const std::size_t bytes = sizeof(change) + std::span(change.tokens).size_bytes();
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return bytes_ == 0 || bytes_ + bytes <= most_bytes_; });
    bytes_ += bytes;
    changes_.push_back(std::move(change));
  }
  changed_.notify_all();
}

std::optional<std::vector<PrefixChange>> ChangeQueue::take(
    std::optional<std::chrono::milliseconds> pause) {
  std::vector<PrefixChange> changes;
  {
    std::unique_lock lock(mutex_);
    const auto has_work = [this] { return closed_ || !changes_.empty(); };
    if (pause) {
      changed_.wait_for(lock, *pause, has_work);
    } else {
      changed_.wait(lock, has_work);
    }
    if (closed_ && changes_.empty()) {
      return std::nullopt;
    }
    changes.swap(changes_);
    bytes_ = 0;
  }
  changed_.notify_all();
  return changes;
}

void ChangeQueue::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
}

}  // namespace winnow::server
