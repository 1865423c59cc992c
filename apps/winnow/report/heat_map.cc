#include "apps/winnow/report/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "apps/winnow/screen.h"

namespace winnow::cli {
namespace {

constexpr int kRowWidth = 80;
constexpr int kLabel = 6;   // "  0 "
constexpr int kNumber = 7;  // " 12345 "

// Colours of a 256-colour terminal: green, yellow, orange, red.
int share_colour(double share) {
  static constexpr std::array<int, 6> kScale{35, 71, 143, 178, 208, 196};
  const auto index = static_cast<std::size_t>(share * kScale.size());
  return kScale[std::min(index, kScale.size() - 1)];
}

std::string cell(int entries, int tokens, int width, bool colour) {
  const double share = tokens > 0 ? static_cast<double>(entries) / tokens : 0.0;
  const std::string filled = share_bar(share, width);
  return colour ? fmt::format("\x1b[48;5;236;38;5;{}m{}\x1b[0m{:>6} ", share_colour(share), filled,
                              entries)
                : fmt::format("{}{:>6} ", filled, entries);
}

}  // namespace

std::string share_bar(double share, int width) {
  using Eighths = std::array<std::string_view, 9>;
  static constexpr Eighths kBlocks{" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};
  static constexpr Eighths kAscii{" ", ".", ".", ".", "-", "-", "-", "=", "#"};
  const Eighths& marks = shows_only_ascii() ? kAscii : kBlocks;
  const int eighths = std::clamp(static_cast<int>(std::lround(share * width * 8)), 1, width * 8);
  std::string text;
  for (int column = 0; column < width; ++column) {
    text += marks[static_cast<std::size_t>(std::clamp(eighths - column * 8, 0, 8))];
  }
  return text;
}

namespace {

// Ends a line without trailing blanks.
void end_line(std::string& text) {
  text.erase(text.find_last_not_of(' ') + 1);
  text += '\n';
}

}  // namespace

std::string cache_picture(std::span<const std::int32_t> entries, int kv_heads, int tokens,
                          bool colour) {
  const int width = std::clamp((kRowWidth - kLabel) / kv_heads - kNumber, 2, 24);
  std::string picture = "layer ";
  for (int head = 0; head < kv_heads; ++head) {
    picture += fmt::format("{:<{}}", fmt::format("head {}", head), width + kNumber);
  }
  end_line(picture);
  const std::size_t layers = entries.size() / static_cast<std::size_t>(kv_heads);
  for (std::size_t layer = 0; layer < layers; ++layer) {
    picture += fmt::format("{:>4}  ", layer);
    for (int head = 0; head < kv_heads; ++head) {
      const std::size_t index =
          layer * static_cast<std::size_t>(kv_heads) + static_cast<std::size_t>(head);
      picture += cell(entries[index], tokens, width, colour);
    }
    end_line(picture);
  }
  return picture;
}

}  // namespace winnow::cli
