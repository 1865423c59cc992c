#include "checkpoint/gguf/split_name.h"

#include <fmt/format.h>

#include <algorithm>

namespace winnow::gguf {
namespace {

constexpr std::string_view kEnd = ".gguf";
constexpr std::string_view kOf = "-of-";
constexpr std::size_t kDigits = 5;

/// `text` as a number of exactly that many digits; 0 for anything else.
int number_of(std::string_view text) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return text.size() == kDigits && std::ranges::all_of(text, is_digit)
             ? std::stoi(std::string(text))
             : 0;
}

}  // namespace

std::string SplitName::file(int of_number) const {
  return fmt::format("{}-{:05}{}{:05}{}", stem, of_number, kOf, count, kEnd);
}

std::optional<SplitName> parse_split_name(std::string_view name) {
  constexpr std::size_t kLength = 1 + kDigits + kOf.size() + kDigits;
  if (!name.ends_with(kEnd) || name.size() < kEnd.size() + kLength) {
    return std::nullopt;
  }
  name.remove_suffix(kEnd.size());
  const std::string_view numbers = name.substr(name.size() - kLength);
  SplitName split{.stem = std::string(name.substr(0, name.size() - kLength)),
                  .number = number_of(numbers.substr(1, kDigits)),
                  .count = number_of(numbers.substr(1 + kDigits + kOf.size()))};
  const bool named = numbers.front() == '-' && numbers.substr(1 + kDigits).starts_with(kOf);
  return named && split.number >= 1 && split.number <= split.count ? std::optional(split)
                                                                   : std::nullopt;
}

}  // namespace winnow::gguf
