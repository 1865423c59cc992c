#include "base/spelling.h"

#include <algorithm>
#include <utility>

namespace winnow {

bool is_one_slip_away(std::string_view a, std::string_view b) {
  if (a.size() > b.size()) {
    std::swap(a, b);
  }
  const auto [x, y] = std::ranges::mismatch(a, b);
  const auto i = static_cast<std::size_t>(x - a.begin());
  if (b.size() - a.size() == 1) {
    return a.substr(i) == b.substr(i + 1);
  }
  if (a.size() != b.size() || i == a.size()) {
    return false;
  }
  return a.substr(i + 1) == b.substr(i + 1) ||
         (i + 1 < a.size() && a[i] == b[i + 1] && a[i + 1] == b[i] &&
          a.substr(i + 2) == b.substr(i + 2));
}

}  // namespace winnow
