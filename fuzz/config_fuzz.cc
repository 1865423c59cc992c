// Any texts as config.json, generation_config.json and dms_metadata.json (separated by a zero
// byte): an Error, or a configuration that is sound and that reads back after writing.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "model/config.h"

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

bool is_sound(const winnow::model::ModelSpec& spec) {
  const winnow::model::AttentionSpec& attention = spec.attention();
  return attention.kv_heads > 0 && attention.heads % attention.kv_heads == 0 &&
         attention.head_dim > 0 && attention.head_dim % 2 == 0 && spec.hidden > 0 &&
         spec.layer_count() > 0 && spec.vocab > 0 && spec.max_positions > 0 &&
         !(spec.dms && spec.dmc) &&
         (!spec.dms || (spec.dms->window >= 0 && spec.dms->channel < attention.head_dim));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  winnow::model::ConfigTexts texts;
  texts.config = take(rest).value_or("");
  texts.generation_config = take(rest);
  texts.dms_metadata = take(rest);
  winnow::model::ModelSpec spec;
  try {
    spec = winnow::model::parse_spec(texts);
  } catch (const winnow::Error&) {
    return 0;
  }
  if (!is_sound(spec)) {
    std::abort();
  }
  winnow::model::format_spec(spec);  // reads back what it wrote, throws if that differs
  return 0;
}
