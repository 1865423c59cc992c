// Words to ask for: RULER's own lists belong to others.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"

namespace winnow::eval {

class Vocabulary {
 public:
  /// The words of `text` of 4 to 12 letters, in lower case, without those that hold others than
  /// a to z. When they are too few, invented ones besides.
  explicit Vocabulary(std::string_view text);

  [[nodiscard]] const std::vector<std::string>& words() const { return words_; }
  /// "house-garden"
  [[nodiscard]] std::string pair(Random& random) const;
  /// Different words; the first ones are the same for any larger `count`. Invented ones when there
  /// are no others left.
  [[nodiscard]] std::vector<std::string> draw(std::size_t count, Random random) const;

 private:
  std::vector<std::string> words_;
};

}  // namespace winnow::eval
