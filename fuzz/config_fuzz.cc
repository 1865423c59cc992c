// Any texts as config.json, generation_config.json and dms_metadata.json (separated by a zero
// byte): an Error, or a configuration that is sound and that reads back after writing.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "checkpoint/config.h"

namespace {

/// Takes the text before the next zero byte off `rest`; nullopt when nothing is left.
std::optional<std::string> take(std::string_view& rest) {
  if (rest.empty()) {
    return std::nullopt;
  }
  const auto end = rest.find('\0');
  std::string text(rest.substr(0, end));
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  return text;
}

bool is_sound(const winnow::ModelConfig& config) {
  return config.kv_heads > 0 && config.heads % config.kv_heads == 0 && config.head_dim > 0 &&
         config.head_dim % 2 == 0 && config.hidden > 0 && config.layers > 0 && config.vocab > 0 &&
         config.max_positions > 0 && !(config.dms && config.dmc) &&
         (!config.dms || (config.dms->window >= 0 && config.dms->channel < config.head_dim));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  winnow::ConfigTexts texts;
  texts.config = take(rest).value_or("");
  texts.generation_config = take(rest);
  texts.dms_metadata = take(rest);
  winnow::ModelConfig config;
  try {
    config = winnow::parse_config(texts);
  } catch (const winnow::Error&) {
    return 0;
  }
  if (!is_sound(config)) {
    std::abort();
  }
  winnow::format_config(config);  // reads back what it wrote, throws if that differs
  return 0;
}
