// Shared state of one rendering: its limits and its clock.
#pragma once

#include <cstdint>
#include <ctime>
#include <string_view>

#include "base/error.h"
#include "tokenizer/jinja/value.h"

namespace winnow::jinja {

/// Templates are untrusted: a rendering has limited time and memory.
class Runtime {
 public:
  // A unit is about a step of evaluation or 8 bytes of memory; chats of a million tokens need far
  // less.
  static constexpr std::uint64_t kUnits = 100'000'000;
  static constexpr std::size_t kMaxText = std::size_t{64} << 20;  // one string, and the output
  static constexpr int kMaxDepth = 600;  // of nested evaluation, which recurses on our stack

  explicit Runtime(std::time_t now) : now_(now) {}

  void spend(std::uint64_t units) {
    require(units <= left_, "the template takes too long or too much memory");
    left_ -= units;
  }
  /// Call before making a list of `count` entries.
  void spend_items(std::size_t count) { spend(1 + 8 * static_cast<std::uint64_t>(count)); }
  /// Call before making or reading a text of `bytes`.
  void spend_text(std::size_t bytes) {
    require(bytes <= kMaxText, "a string is longer than {} bytes", kMaxText);
    spend(1 + bytes / 8);
  }
  /// Call before searching for `needle`, in the worst case step by step.
  void spend_search(std::string_view text, std::string_view needle) {
    spend(1 + text.size() / 16 + text.size() / 32 * needle.size() / 32);
  }

  [[nodiscard]] std::time_t now() const { return now_; }

  /// One level of nesting during its lifetime.
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
