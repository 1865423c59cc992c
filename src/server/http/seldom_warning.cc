#include "server/http/seldom_warning.h"

namespace winnow::server {

void SeldomWarning::happened(const std::string& why) {
  std::int64_t times = 0;
  {
    const std::lock_guard lock(mutex_);
    ++total_;
    const auto now = Clock::now();
    if (last_ && now < *last_ + pause_) {
      return;
    }
    last_ = now;
    times = total_ - std::exchange(told_, total_);
  }
  tell_(times, why);
}

std::int64_t SeldomWarning::total() const {
  const std::lock_guard lock(mutex_);
  return total_;
}

}  // namespace winnow::server
