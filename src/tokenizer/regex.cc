#include "tokenizer/regex.h"

#include "tokenizer/regex_engine.h"
#include "tokenizer/regex_syntax.h"

namespace winnow {

Regex::Regex(std::string_view pattern, std::string_view where) {
  const std::string place(where);
  if (const std::optional<std::string> same = to_pcre2_syntax(pattern)) {
    engine_ = detail::make_pcre2_engine(*same, place);
  }
  if (engine_ == nullptr) {
    engine_ = detail::make_oniguruma_engine(to_unicode_16(pattern), place);
  }
}

std::vector<TextRange> Regex::find_from(std::string_view text, std::size_t from, bool open) const {
  return engine_->find_from(text, from, open);
}

bool Regex::knows_open_texts() const {
  return engine_->knows_open_texts();
}

}  // namespace winnow
