// What the beginnings of earlier texts became: a conversation, or a system prompt, comes again with
// something new behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace winnow {

/// Some texts and their ids. Those of another text that begins like one of them need not be found
/// again. A chat's messages are texts by themselves, cut at special tokens. Used by many threads.
class TextMemo {
 public:
  static constexpr std::size_t kMostTextBytes = std::size_t{4} << 20;

  /// Up to `end` a text's ids are known, `ids` of them, for every text that begins with the same
  /// `seen` bytes.
  struct Checkpoint {
    std::size_t seen = 0;
    std::size_t end = 0;
    std::size_t ids = 0;
  };

  struct Text {
    std::string bytes;
    std::vector<std::int32_t> ids;
    std::vector<Checkpoint> checkpoints;  // in their order
  };

  /// The checkpoints of an earlier text that hold for another one.
  struct Match {
    std::shared_ptr<const Text> text;  // null: there are none
    std::size_t count = 0;

    [[nodiscard]] std::span<const Checkpoint> checkpoints() const {
      return text ? std::span(text->checkpoints).first(count) : std::span<const Checkpoint>();
    }
    /// Up to the last checkpoint.
    [[nodiscard]] std::span<const std::int32_t> ids() const {
      return count > 0 ? std::span(text->ids).first(text->checkpoints[count - 1].ids)
                       : std::span<const std::int32_t>();
    }
  };

  /// The match that reaches farthest into `text`.
  [[nodiscard]] Match find(std::string_view text);
  /// Keeps `text` (of up to kMostTextBytes) in the place of those that it begins with, or of those
  /// that were of use least recently.
  void put(Text text);

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<const Text>> texts_;  // the most recently used last
};

}  // namespace winnow
