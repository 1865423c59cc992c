#include "tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "base/error.h"
#include "tokenizer/regex_syntax.h"
#include "tokenizer/utf8.h"

namespace winnow {
namespace {

// Steps one search may take: a run of n spaces costs a few n. What needs more is a pattern that
// backtracks without end.
constexpr std::uint64_t kMinSteps = 100'000;
constexpr std::uint64_t kStepsPerByte = 64;
constexpr std::uint32_t kMaxHeapKib = 512 * 1024;

template <auto Function>
struct Free {
  template <class T>
  void operator()(T* p) const {
    Function(p);
  }
};
using MatchData = std::unique_ptr<pcre2_match_data, Free<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Free<pcre2_match_context_free>>;

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

}  // namespace

struct Regex::Code {
  std::unique_ptr<pcre2_code, Free<pcre2_code_free>> code;
  bool compiled;  // to machine code
  std::string where;
};

namespace {

// One text being searched.
class Search {
 public:
  Search(const pcre2_code* code, bool compiled, std::string_view text, bool open,
         const std::string& where)
      : code_(code),
        compiled_(compiled),
        text_(text),
        open_(open),
        where_(where),
        data_(pcre2_match_data_create_from_pattern(code, nullptr)),
        context_(pcre2_match_context_create(nullptr)) {
    require(data_ && context_, "{}: out of memory", where_);
    const std::uint64_t steps = std::max(kMinSteps, kStepsPerByte * text.size());
    pcre2_set_match_limit(context_.get(),
                          static_cast<std::uint32_t>(std::min<std::uint64_t>(steps, UINT32_MAX)));
    pcre2_set_heap_limit(context_.get(), kMaxHeapKib);
  }

  // The first match at `from` or later; of an open text one that its end does not touch.
  std::optional<TextRange> next(std::size_t from) {
    const std::uint32_t options = open_ ? PCRE2_PARTIAL_HARD : 0;
    int result = compiled_ ? match(pcre2_jit_match, from, options) : PCRE2_ERROR_JIT_STACKLIMIT;
    if (result == PCRE2_ERROR_JIT_STACKLIMIT || result == PCRE2_ERROR_JIT_BADOPTION) {
      // Compiled code uses the machine stack, a little of it; the interpreter uses the heap. And
      // some expressions ask not to be compiled.
      result = match(pcre2_match, from, options | PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT);
    }
    const bool gave_up = result == PCRE2_ERROR_MATCHLIMIT || result == PCRE2_ERROR_HEAPLIMIT;
    if (result == PCRE2_ERROR_NOMATCH || result == PCRE2_ERROR_PARTIAL || (open_ && gave_up)) {
      return std::nullopt;
    }
    if (result < 0) {
      fail("{}: matching a text of {} bytes failed: {}", where_, text_.size(), message_of(result));
    }
    const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(data_.get());
    require(offsets[0] >= from && offsets[0] <= offsets[1],
            "{}: the expression moves a match's start (\\K); expected one that does not", where_);
    return TextRange{offsets[0], offsets[1]};
  }

 private:
  int match(decltype(pcre2_match) function, std::size_t from, std::uint32_t options) {
    return function(code_, reinterpret_cast<PCRE2_SPTR>(text_.data()), text_.size(), from, options,
                    data_.get(), context_.get());
  }

  const pcre2_code* code_;
  bool compiled_;
  std::string_view text_;
  bool open_;
  const std::string& where_;
  MatchData data_;
  MatchContext context_;
};

}  // namespace

Regex::Regex(std::string_view pattern, std::string_view where) {
  const std::string translated = to_pcre2_syntax(pattern, where);
  int error = 0;
  PCRE2_SIZE offset = 0;
  // Multi-line because Oniguruma's ^ and $ always are; \C would cut characters.
  pcre2_code* code = pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  require(code != nullptr, "{}: not a regular expression: {} near byte {}", where,
          message_of(error), offset);
  // Fails where memory may not be made executable; the interpreter then does the work.
  const bool compiled = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD) == 0;
  code_ = std::shared_ptr<const Code>(new Code{
      std::unique_ptr<pcre2_code, Free<pcre2_code_free>>(code), compiled, std::string(where)});
}

std::vector<TextRange> Regex::find_from(std::string_view text, std::size_t from, bool open) const {
  Search search(code_->code.get(), code_->compiled, text, open, code_->where);
  std::vector<TextRange> matches;
  matches.reserve((text.size() - from) / 4);
  std::size_t last_end = from > 0 ? from : std::string_view::npos;  // of the match before
  while (from <= text.size()) {
    const std::optional<TextRange> match = search.next(from);
    if (!match) {
      break;
    }
    if (match->begin == match->end && last_end == match->end) {
      from =
          match->end == text.size() ? text.size() + 1 : match->end + utf8_length(text[match->end]);
      continue;
    }
    matches.push_back(*match);
    from = match->end;
    last_end = from;
  }
  return matches;
}

}  // namespace winnow
