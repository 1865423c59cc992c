// What one rendering shares among all that takes part in it: its limits and its clock.
#pragma once

#include <cstdint>
#include <ctime>
#include <string_view>

#include "base/error.h"
#include "tokenizer/jinja/value.h"

namespace winnow::jinja {

/// Templates come from strangers: a rendering may use only so much of everything.
class Runtime {
 public:
  // A unit is about a step of evaluation or 8 bytes of memory; chats of a million tokens stay far
  // below.
  static constexpr std::uint64_t kUnits = 100'000'000;
  static constexpr std::size_t kMaxText = std::size_t{64} << 20;  // one string, and the output
  static constexpr int kMaxDepth = 600;  // nesting of evaluation, which is nesting of our stack

  explicit Runtime(std::time_t now) : now_(now) {}

  void spend(std::uint64_t units) {
    require(units <= left_, "the template takes too long or too much memory");
    left_ -= units;
  }
  /// A list of `count` entries is about to be made.
  void spend_items(std::size_t count) { spend(1 + 8 * static_cast<std::uint64_t>(count)); }
  /// A text of `bytes` is about to be made or read.
  void spend_text(std::size_t bytes) {
    require(bytes <= kMaxText, "a string is longer than {} bytes", kMaxText);
    spend(1 + bytes / 8);
  }
  /// `needle` is about to be looked for, in the worst case step by step.
  void spend_search(std::string_view text, std::string_view needle) {
    spend(1 + text.size() / 16 + text.size() / 32 * needle.size() / 32);
  }

  [[nodiscard]] std::time_t now() const { return now_; }

  /// One level of nesting, for as long as it lives.
  class Level {
   public:
    explicit Level(Runtime& runtime) : runtime_(runtime) {
      require(++runtime_.depth_ <= kMaxDepth, "the template nests too deeply");
    }
    ~Level() { --runtime_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Runtime& runtime_;
  };

 private:
  std::uint64_t left_ = kUnits;
  std::time_t now_;
  int depth_ = 0;
};

}  // namespace winnow::jinja
