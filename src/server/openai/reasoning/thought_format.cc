#include "server/openai/reasoning/thought_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "server/openai/tools/formats.h"

namespace winnow::server {
namespace {

constexpr std::array kFormats{
    ThoughtFormat{"think", "<think>", "</think>"},                       // Qwen3, DeepSeek
    ThoughtFormat{"mistral", "[THINK]", "[/THINK]"},                     // Magistral
    ThoughtFormat{"command", "<|START_THINKING|>", "<|END_THINKING|>"},  // Command A
    ThoughtFormat{"seed", "<seed:think>", "</seed:think>"},              // Seed-OSS
    ThoughtFormat{"kimi", "◁think▷", "◁/think▷"},                        // Kimi-VL
    ThoughtFormat{"harmony", "<|channel|>analysis<|message|>", "<|end|>", "<|start|>assistant",
                  "<|channel|>final<|message|>"},  // gpt-oss
};

bool has_all_marks(const Tokenizer& tokenizer, const ThoughtFormat& format) {
  return std::ranges::all_of(
      format.marks(), [&](const std::string& mark) { return tokenizer.find(mark).has_value(); });
}

}  // namespace

std::vector<std::string> ThoughtFormat::marks() const {
  return has_channels() ? harmony_format().marks()
                        : std::vector<std::string>{std::string(begin), std::string(end)};
}

const ThoughtFormat* find_thought_format(std::string_view name) {
  const auto* const found = std::ranges::find(kFormats, name, &ThoughtFormat::name);
  return found == kFormats.end() ? nullptr : found;
}

std::string thought_format_names() {
  std::string names;
  for (const ThoughtFormat& format : kFormats) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", format.name);
  }
  return names;
}

const ThoughtFormat* thought_format_of(const Tokenizer& tokenizer) {
  const auto* const found = std::ranges::find_if(
      kFormats, [&](const ThoughtFormat& format) { return has_all_marks(tokenizer, format); });
  return found == kFormats.end() ? nullptr : found;
}

ThoughtStart thought_start(const ThoughtFormat& format, std::string_view end_of_prompt) {
  const auto last = end_of_prompt.find_last_not_of(" \t\r\n");
  const std::string_view text =
      end_of_prompt.substr(0, last == std::string_view::npos ? 0 : last + 1);
  if (text.ends_with(format.begin)) {
    return ThoughtStart::open;
  }
  if (format.has_channels()) {  // other formats: the prompt ends within a message
    return text.ends_with(format.behind) ? ThoughtStart::free : ThoughtStart::closed;
  }
  return text.ends_with(format.end) ? ThoughtStart::closed : ThoughtStart::free;
}

}  // namespace winnow::server
