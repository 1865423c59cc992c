// Words for RULER's tasks: the licence of RULER's own lists is not ours.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"

namespace winnow::eval {

class Vocabulary {
 public:
  /// The words of `text` with 4 to 12 letters, in lower case, without those that have letters other
  /// than a to z. Adds invented words if these are too few.
  explicit Vocabulary(std::string_view text);

  [[nodiscard]] const std::vector<std::string>& words() const { return words_; }
  /// "house-garden"
  [[nodiscard]] std::string pair(Random& random) const;
  /// Distinct words; the first ones are the same for any larger `count`. Adds invented ones when
  /// there are too few.
  [[nodiscard]] std::vector<std::string> draw(std::size_t count, Random random) const;

 private:
  std::vector<std::string> words_;
};

}  // namespace winnow::eval
