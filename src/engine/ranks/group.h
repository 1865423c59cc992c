// Rank 0's side of a group of ranks that run a model together.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/ranks/member.h"
#include "engine/ranks/message.h"
#include "engine/runner.h"
#include "parallel/communicator.h"

namespace winnow::engine {

/// Reads the bytes of a rank's answer.
class RankAnswer {
 public:
  explicit RankAnswer(std::vector<std::byte> bytes) : bytes_(std::move(bytes)), reader_(bytes_) {}
  RankAnswer(RankAnswer&&) = default;  // its memory stays where it is
  RankAnswer& operator=(RankAnswer&&) = default;

  template <class T>
  T take() {
    return reader_.take<T>();
  }
  template <class T>
  std::vector<T> take_all() {
    return reader_.take_all<T>();
  }
  [[nodiscard]] MessageReader& reader() { return reader_; }

 private:
  std::vector<std::byte> bytes_;
  MessageReader reader_;
};

/// Sends commands to all ranks, executes rank 0's part, and gathers the answers.
class Group {
 public:
  /// `local` runs rank 0's part of `whole`. `ranks` must outlive the group, which ~Group() ends.
  Group(std::unique_ptr<const Backend> local, model::ModelSpec whole,
        parallel::Communicator& ranks);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  [[nodiscard]] const Backend& local() const { return *local_; }
  [[nodiscard]] const model::ModelSpec& whole() const { return whole_; }
  /// The shape of the whole cache, and the shapes of the ranks' parts.
  [[nodiscard]] const kvcache::CacheShape& shape() const { return shape_; }
  [[nodiscard]] const std::vector<kvcache::CacheShape>& shapes() const { return shapes_; }
  /// The number of commands so far. While it is unchanged, the ranks hold the same data.
  [[nodiscard]] std::int64_t asked() const { return asked_; }
  [[nodiscard]] int new_id() { return ids_++; }

  /// Sends a command and returns the answers by rank. Throws the Error of a rank that failed.
  std::vector<RankAnswer> ask(RankCommand command, const std::function<void(MessageWriter&)>& say,
                              const StepResults* results = nullptr);

  /// The same for commands with one value as the answer: returns all values, combined by `join`.
  template <class T, class Join>
  T ask_for(RankCommand command, const std::function<void(MessageWriter&)>& say, const Join& join) {
    std::optional<T> result;
    for (RankAnswer& answer : ask(command, say)) {
      const T value = answer.take<T>();
      result = result ? join(*result, value) : value;
    }
    return *result;
  }

 private:
  std::vector<std::vector<std::byte>> tell(std::span<const std::byte> message,
                                           const StepResults* results);

  std::unique_ptr<const Backend> local_;
  model::ModelSpec whole_;
  kvcache::CacheShape shape_;
  std::vector<kvcache::CacheShape> shapes_;
  parallel::Communicator& ranks_;
  Member member_;
  std::mutex mutex_;
  std::atomic<int> ids_ = 0;
  std::atomic<std::int64_t> asked_ = 0;
};

}  // namespace winnow::engine
