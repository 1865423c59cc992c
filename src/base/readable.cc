#include "base/readable.h"

#include <fmt/format.h>

#include <array>
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

std::string readable_count(double count) {
  return count < 1e9 ? fmt::format("{:.1f}M", count * 1e-6) : fmt::format("{:.1f}B", count * 1e-9);
}

}  // namespace winnow
