#include "apps/winnow/chat/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <variant>
#include <vector>

#include "base/error.h"
#include "checkpoint/json.h"
#include "engine/request.h"

namespace winnow::cli {
namespace {

using SettingValue = std::variant<double*, int*, std::uint64_t*>;

struct Setting {
  std::string_view name;
  SettingValue value;
};

std::vector<Setting> settings_of(GenerateOptions& options) {
  SamplingOptions& sampling = options.sampling;
  return {{"temperature", &sampling.temperature},
          {"top-p", &sampling.top_p},
          {"top-k", &sampling.top_k},
          {"min-p", &sampling.min_p},
          {"repetition-penalty", &sampling.repetition_penalty},
          {"seed", &sampling.seed},
          {"max-tokens", &options.max_tokens}};
}

template <class Number>
void read_number(std::string_view name, std::string_view text, Number& number) {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  require(code == std::errc() && end == text.data() + text.size() && !text.empty(),
          "/set {}: expected a number, found {}", name, in_quotes(text));
}

}  // namespace

void change_setting(GenerateOptions& options, std::string_view assignment) {
  const std::size_t end = std::min(assignment.find(' '), assignment.size());
  const std::string_view name = assignment.substr(0, end);
  std::string_view text = assignment.substr(end);
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  GenerateOptions changed = options;
  const std::vector<Setting> settings = settings_of(changed);
  const auto found = std::ranges::find(settings, name, &Setting::name);
  require(found != settings.end(), "/set {}: no such setting; /set lists them", name);
  std::visit([&](auto* number) { read_number(name, text, *number); }, found->value);
  engine::validate(changed.sampling);
  require(changed.max_tokens >= 1, "/set max-tokens {}: expected 1 or more", changed.max_tokens);
  options = changed;
}

std::string list_settings(const GenerateOptions& options) {
  GenerateOptions copy = options;
  std::string list;
  for (const Setting& setting : settings_of(copy)) {
    std::visit([&](auto* number) { list += fmt::format("  {:<20} {}\n", setting.name, *number); },
               setting.value);
  }
  return list;
}

}  // namespace winnow::cli
