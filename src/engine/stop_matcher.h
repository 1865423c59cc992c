// Ends a streamed text before the first stop string.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace winnow::engine {

/// Passes text through, piece by piece, up to the first complete stop string (the longest if
/// several end at the same place). Holds back only text that may begin a stop string. The result
/// does not depend on how the text is cut into pieces.
class StopMatcher {
 public:
  /// `keep_stop`: the stop string stays in the text. Throws Error when a stop string is empty or
  /// not UTF-8.
  explicit StopMatcher(std::vector<std::string> stops, bool keep_stop = false);

  /// Adds `text` and returns the text that is now final; "" once stopped.
  std::string push(std::string_view text);
  /// Returns the text that was held back, at the end of the input.
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
