#include "engine/background.h"

#include <utility>

namespace winnow::engine {

Background::Background(int threads) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this] { work(); });
  }
}

Background::~Background() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

void Background::run(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  changed_.notify_all();
}

void Background::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return tasks_.empty() && running_ == 0; });
}

void Background::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return closing_ || !tasks_.empty(); });
    if (tasks_.empty()) {
      return;
    }
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    ++running_;
    lock.unlock();
    task();
    task = nullptr;  // frees everything that it holds
    lock.lock();
    --running_;
    changed_.notify_all();
  }
}

}  // namespace winnow::engine
