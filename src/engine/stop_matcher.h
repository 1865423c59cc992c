// Ends a text before the first of some stop strings, while it is still being written.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace winnow::engine {

/// Text goes in piece by piece and comes out unchanged up to the stop string that is complete first
/// (of several complete at once, the longest). Only what may be the beginning of a stop string is
/// held back. How the text is cut into pieces makes no difference to what comes out in all.
class StopMatcher {
 public:
  /// `keep_stop`: the stop string stays in the text. Throws Error when a stop string is empty or
  /// not UTF-8.
  explicit StopMatcher(std::vector<std::string> stops, bool keep_stop = false);

  /// The text that became certain with `text`; "" once stopped.
  std::string push(std::string_view text);
  /// The text that was held back: no more is coming.
  std::string finish();
  [[nodiscard]] bool stopped() const { return !stop_.empty(); }
  /// The stop string that ended the text; "" while none has.
  [[nodiscard]] const std::string& stop() const { return stop_; }

 private:
  [[nodiscard]] std::size_t held_back() const;

  std::vector<std::string> stops_;
  std::string pending_;
  bool keep_stop_;
  std::string stop_;
};

}  // namespace winnow::engine
