#include "parallel/thread_ranks.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>

#include "base/error.h"
#include "base/threads.h"

namespace winnow::parallel {
namespace {

// The state that the ranks of a group share.
class Meeting {
 public:
  Meeting(int size, double patience)
      : shown_(static_cast<std::size_t>(size)), patience_(patience) {}

  [[nodiscard]] int size() const { return static_cast<int>(shown_.size()); }

  /// Waits for all ranks, each of which passes memory, and returns these spans by rank. They can be
  /// read until this rank calls part(). A rank that is not `patient` fails the group if others do
  /// not come.
  std::span<const std::span<const std::byte>> meet(int rank, std::span<const std::byte> shown,
                                                   bool patient = false) {
    std::unique_lock lock(mutex_);
    shown_[static_cast<std::size_t>(rank)] = shown;
    wait(lock, rank, patient);
    return shown_;
  }

  /// Waits until all ranks have read the spans. No time limit: all have arrived and only copy.
  void part(int rank) {
    std::unique_lock lock(mutex_);
    wait(lock, rank, /*patient=*/true);
  }

  void fail(std::string why) {
    const std::lock_guard lock(mutex_);
    if (!failure_) {
      failure_ = std::move(why);
    }
    changed_.notify_all();
  }

 private:
  void wait(std::unique_lock<std::mutex>& lock, int rank, bool patient) {
    check();
    const std::size_t now = meetings_;
    if (++arrived_ == size()) {
      arrived_ = 0;
      ++meetings_;
      changed_.notify_all();
      return;
    }
    const auto over = [&] { return meetings_ != now || failure_; };
    if (patient) {
      changed_.wait(lock, over);
    } else if (!changed_.wait_for(lock, std::chrono::duration<double>(patience_), over)) {
      failure_ = fmt::format("rank {} has waited {:.0f} s for another rank", rank, patience_);
      changed_.notify_all();
    }
    if (meetings_ == now) {
      check();
    }
  }

  void check() const {
    if (failure_) {
      throw Error(*failure_);
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::span<const std::byte>> shown_;
  double patience_;
  std::size_t meetings_ = 0;
  int arrived_ = 0;
  std::optional<std::string> failure_;
};

// Another rank's span as floats; it must have as many as `own`.
std::span<const float> same_values(std::span<const std::byte> shown, std::span<const float> own) {
  require(shown.size() == own.size_bytes(), "ranks exchange {} and {} bytes", own.size_bytes(),
          shown.size());
  return {reinterpret_cast<const float*>(shown.data()), own.size()};
}

std::span<const float> same_part(std::span<const std::byte> shown, std::span<const float> own,
                                 std::span<const std::size_t> cuts, int rank) {
  const auto r = static_cast<std::size_t>(rank);
  return same_values(shown, own).subspan(cuts[r], cuts[r + 1] - cuts[r]);
}

class ThreadRank : public Communicator {
 public:
  ThreadRank(std::shared_ptr<Meeting> meeting, int rank)
      : meeting_(std::move(meeting)), rank_(rank) {}

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return meeting_->size(); }
  [[nodiscard]] bool in_one_process() const override { return true; }

  void meet() override {
    meeting_->meet(rank_, {}, /*patient=*/true);
    meeting_->part(rank_);
  }

  void sum(std::span<float> values) override {
    const auto all = meeting_->meet(rank_, std::as_bytes(values));
    sums_.assign(values.size(), 0.0F);
    for (const auto& shown : all) {
      std::ranges::transform(sums_, same_values(shown, values), sums_.begin(), std::plus<>());
    }
    meeting_->part(rank_);
    std::ranges::copy(sums_, values.begin());
  }

  // In place: other ranks read only their own parts of these values.
  void reduce_scatter(std::span<float> values, std::span<const std::size_t> cuts) override {
    const auto all = meeting_->meet(rank_, std::as_bytes(values));
    std::vector<std::span<const float>> parts;
    for (const auto& shown : all) {
      parts.push_back(same_part(shown, values, cuts, rank_));
    }
    const std::span<float> own = part_of(values, cuts, rank_);
    parallel_ranges(own.size(), [&](std::size_t begin, std::size_t end, int) {
      for (std::size_t i = begin; i < end; ++i) {
        float sum = 0.0F;
        for (const auto& part : parts) {
          sum += part[i];
        }
        own[i] = sum;
      }
    });
    meeting_->part(rank_);
  }

  void all_gather(std::span<float> values, std::span<const std::size_t> cuts) override {
    const auto all = meeting_->meet(rank_, std::as_bytes(values));
    for (int rank = 0; rank < size(); ++rank) {
      if (rank != rank_) {
        const auto other = same_part(all[static_cast<std::size_t>(rank)], values, cuts, rank);
        std::ranges::copy(other, part_of(values, cuts, rank).begin());
      }
    }
    meeting_->part(rank_);
  }

  void broadcast(std::span<std::byte> bytes) override {
    const auto all = meeting_->meet(rank_, bytes, /*patient=*/rank_ != 0);
    require(all[0].size() == bytes.size(), "rank 0 broadcasts {} bytes, rank {} expects {}",
            all[0].size(), rank_, bytes.size());
    if (rank_ != 0) {
      std::ranges::copy(all[0], bytes.begin());
    }
    meeting_->part(rank_);
  }

  std::vector<std::vector<std::byte>> gather(std::span<const std::byte> bytes) override {
    const auto all = meeting_->meet(rank_, bytes);
    std::vector<std::vector<std::byte>> result;
    for (const auto& shown : all) {
      if (rank_ == 0) {
        result.emplace_back(shown.begin(), shown.end());
      }
    }
    meeting_->part(rank_);
    return result;
  }

  void fail(const std::string& why) noexcept override { meeting_->fail(why); }

 private:
  std::shared_ptr<Meeting> meeting_;
  int rank_;
  std::vector<float> sums_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_thread_ranks(int size, double patience) {
  const auto meeting = std::make_shared<Meeting>(size, patience);
  std::vector<std::unique_ptr<Communicator>> ranks;
  ranks.reserve(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    ranks.push_back(std::make_unique<ThreadRank>(meeting, rank));
  }
  return ranks;
}

}  // namespace winnow::parallel
