// Rank 0's end of the ranks that run a model together.
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

/// The bytes of an answer, to be read.
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

/// Sends commands, obeys them itself, and gathers what all answer.
class Group {
 public:
  /// `local` runs rank 0's part of `whole`. `ranks` must outlive the group, which ends with this.
  Group(std::unique_ptr<const Backend> local, model::ModelSpec whole,
        parallel::Communicator& ranks);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  [[nodiscard]] const Backend& local() const { return *local_; }
  [[nodiscard]] const model::ModelSpec& whole() const { return whole_; }
  /// Of the whole cache, and of each rank's.
  [[nodiscard]] const kvcache::CacheShape& shape() const { return shape_; }
  [[nodiscard]] const std::vector<kvcache::CacheShape>& shapes() const { return shapes_; }
  /// Questions so far: the ranks hold what they held as long as there is no new one.
  [[nodiscard]] std::int64_t asked() const { return asked_; }
  [[nodiscard]] int new_id() { return ids_++; }

  /// What the ranks answer, by rank. Throws the Error of one that could not do it.
  std::vector<RankAnswer> ask(RankCommand command, const std::function<void(MessageWriter&)>& say,
                              const StepResults* results = nullptr);

  /// The same of commands whose answer is one value: all of these, as `join` makes one of two.
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
