// Caches the ids of texts by prefix: a conversation, or a system prompt, is often encoded again
// with new text after it.
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

/// Some texts and their ids, which need not be computed again for another text with the same
/// prefix. Parts of a chat between special tokens are separate texts. Used by many threads.
class TextMemo {
 public:
  static constexpr std::size_t kMostTextBytes = std::size_t{4} << 20;

  /// Up to `end`, a text's ids are known, `ids` of them, for every text that begins with the same
  /// `seen` bytes.
  struct Checkpoint {
    std::size_t seen = 0;
    std::size_t end = 0;
    std::size_t ids = 0;
  };

  struct Text {
    std::string bytes;
    std::vector<std::int32_t> ids;
    std::vector<Checkpoint> checkpoints;  // in order
  };

  /// The checkpoints of an earlier text that are valid for another one.
  struct Match {
    std::shared_ptr<const Text> text;  // null: there are none
    std::size_t count = 0;

    [[nodiscard]] std::span<const Checkpoint> checkpoints() const {
      return text ? std::span(text->checkpoints).first(count) : std::span<const Checkpoint>();
    }
    /// The ids up to the last checkpoint.
    [[nodiscard]] std::span<const std::int32_t> ids() const {
      return count > 0 ? std::span(text->ids).first(text->checkpoints[count - 1].ids)
                       : std::span<const std::int32_t>();
    }
  };

  /// The longest match with `text`.
  [[nodiscard]] Match find(std::string_view text);
  /// Stores `text` (of up to kMostTextBytes). It replaces stored texts that are its prefixes, or
  /// the least recently used ones.
  void put(Text text);

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<const Text>> texts_;  // the most recently used last
};

}  // namespace winnow
