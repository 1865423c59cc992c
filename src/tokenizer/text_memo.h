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

/// Some texts and their ids, from which those of other texts can be gone on with. Used by many
/// threads.
class TextMemo {
 public:
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
  /// Keeps `text` in the place of those that it begins with, or of those that were of use least
  /// recently.
  void put(Text text);

 private:
  using Texts = std::vector<std::shared_ptr<const Text>>;

  std::mutex mutex_;
  Texts texts_;  // the most recently used last
};

}  // namespace winnow
