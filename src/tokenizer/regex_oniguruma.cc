// Runs expressions in Oniguruma, whose syntax tokenizer.json uses.
#include <oniguruma.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "tokenizer/regex_engine.h"

namespace winnow::detail {
namespace {

constexpr unsigned kMaxStackEntries = 4 << 20;  // of about 40 bytes

template <auto Function>
struct OnigFree {
  template <class T>
  void operator()(T* p) const {
    Function(p);
  }
};
void free_region(OnigRegion* region) {
  onig_region_free(region, 1);
}
using OnigCode = std::unique_ptr<regex_t, OnigFree<onig_free>>;
using OnigMatch = std::unique_ptr<OnigRegion, OnigFree<free_region>>;
using OnigLimits = std::unique_ptr<OnigMatchParam, OnigFree<onig_free_match_param>>;

const OnigUChar* bytes_at(std::string_view text, std::size_t at) {
  return reinterpret_cast<const OnigUChar*>(text.data()) + at;
}

template <class... Info>
std::string onig_message(int code, const Info*... info) {
  std::array<OnigUChar, ONIG_MAX_ERROR_MESSAGE_LEN> buffer{};
  onig_error_code_to_str(buffer.data(), code, info...);
  return reinterpret_cast<const char*>(buffer.data());
}

void initialize_once() {
  static const int done = [] {
    OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
    return onig_initialize(encodings, 1);
  }();
  require(done == ONIG_NORMAL, "Oniguruma: {}", onig_message(done));
}

class OnigurumaEngine : public RegexEngine {
 public:
  OnigurumaEngine(OnigCode code, std::string where)
      : code_(std::move(code)), where_(std::move(where)) {}

  [[nodiscard]] std::vector<TextRange> find_from(std::string_view text, std::size_t from,
                                                 bool /*open*/) const override {
    const OnigMatch match(onig_region_new());
    const OnigLimits limits(onig_new_match_param());
    require(match && limits, "{}: out of memory", where_);
    onig_initialize_match_param(limits.get());
    onig_set_match_stack_limit_size_of_match_param(limits.get(), kMaxStackEntries);
    onig_set_retry_limit_in_search_of_match_param(limits.get(), allowed_steps(text));
    onig_set_retry_limit_in_match_of_match_param(limits.get(), allowed_steps(text));
    return all_matches(text, from, [&](std::size_t at) -> std::optional<TextRange> {
      const int result = onig_search_with_param(
          code_.get(), bytes_at(text, 0), bytes_at(text, text.size()), bytes_at(text, at),
          bytes_at(text, text.size()), match.get(), ONIG_OPTION_NONE, limits.get());
      if (result == ONIG_MISMATCH) {
        return std::nullopt;
      }
      require(result >= 0, "{}: matching a text of {} bytes failed: {}", where_, text.size(),
              onig_message(result));
      const TextRange range{static_cast<std::size_t>(match->beg[0]),
                            static_cast<std::size_t>(match->end[0])};
      require(range.begin >= at && range.begin <= range.end,
              "{}: the expression moves a match's start (\\K); expected one that does not", where_);
      return range;
    });
  }
  [[nodiscard]] bool knows_open_texts() const override { return false; }

 private:
  OnigCode code_;
  std::string where_;
};

}  // namespace

std::unique_ptr<const RegexEngine> make_oniguruma_engine(const std::string& pattern,
                                                         const std::string& where) {
  initialize_once();
  regex_t* code = nullptr;
  OnigErrorInfo info{};
  const int result = onig_new(&code, bytes_at(pattern, 0), bytes_at(pattern, pattern.size()),
                              ONIG_OPTION_NONE, ONIG_ENCODING_UTF8, ONIG_SYNTAX_DEFAULT, &info);
  OnigCode owned(code);
  require(result == ONIG_NORMAL, "{}: not a regular expression: {}", where,
          onig_message(result, &info));
  return std::make_unique<const OnigurumaEngine>(std::move(owned), where);
}

}  // namespace winnow::detail
