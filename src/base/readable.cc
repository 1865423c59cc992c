#include "base/readable.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string_view>

namespace winnow {

std::string readable_bytes(double bytes) {
  constexpr std::array<std::string_view, 5> kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes >= 1024.0 && unit + 1 < kUnits.size()) {
    bytes /= 1024.0;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", bytes,
                     unit == 0 || bytes >= 100.0 ? 0
                     : bytes >= 10.0             ? 1
                                                 : 2,
                     kUnits[unit]);
}

std::string readable_number(double number) {
  constexpr int kDigits = 3;
  constexpr int kGroup = 3;
  const int magnitude = number == 0.0 ? 0 : static_cast<int>(std::floor(std::log10(number)));
  std::string text = fmt::format("{:.{}f}", number, std::max(0, kDigits - 1 - magnitude));
  const std::size_t end = std::min(text.find('.'), text.size());
  if (end < text.size()) {
    text.erase(text.find_last_not_of('0') + 1);
    text.erase(std::min(text.size(), text.find_last_not_of('.') + 1));
  }
  for (int at = static_cast<int>(end) - kGroup; at > 0; at -= kGroup) {
    text.insert(static_cast<std::size_t>(at), 1, ',');
  }
  return text;
}

std::string readable_count(double count) {
  return count < 1e9 ? fmt::format("{:.1f}M", count * 1e-6) : fmt::format("{:.1f}B", count * 1e-9);
}

}  // namespace winnow
