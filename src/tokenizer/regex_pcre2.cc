// Runs expressions in PCRE2, compiled to machine code if that is allowed.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/error.h"
#include "tokenizer/regex_engine.h"

namespace winnow::detail {
namespace {

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

// One text being searched.
class Pcre2Search {
 public:
  Pcre2Search(const pcre2_code* code, bool compiled, std::string_view text, bool open,
              const std::string& where)
      : code_(code),
        compiled_(compiled),
        text_(text),
        open_(open),
        where_(where),
        data_(pcre2_match_data_create_from_pattern(code, nullptr)),
        context_(pcre2_match_context_create(nullptr)) {
    require(data_ && context_, "{}: out of memory", where_);
    pcre2_set_match_limit(context_.get(), static_cast<std::uint32_t>(std::min<std::uint64_t>(
                                              allowed_steps(text), UINT32_MAX)));
    pcre2_set_heap_limit(context_.get(), kMaxHeapKib);
  }

  // The first match at `from` or later; in an open text, one that its end cannot change.
  std::optional<TextRange> next(std::size_t from) {
    const std::uint32_t options = open_ ? PCRE2_PARTIAL_HARD : 0;
    int result = compiled_ ? match(pcre2_jit_match, from, options) : PCRE2_ERROR_JIT_STACKLIMIT;
    if (result == PCRE2_ERROR_JIT_STACKLIMIT || result == PCRE2_ERROR_JIT_BADOPTION) {
      // Compiled code uses a small machine stack; the interpreter uses the heap. Also, some
      // expressions request not to be compiled.
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

class Pcre2Engine : public RegexEngine {
 public:
  Pcre2Engine(pcre2_code* code, std::string where)
      : code_(code),
        // Fails if memory may not be made executable; then the interpreter is used.
        compiled_(pcre2_jit_compile(code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD) == 0),
        where_(std::move(where)) {}

  [[nodiscard]] std::vector<TextRange> find_from(std::string_view text, std::size_t from,
                                                 bool open) const override {
    Pcre2Search search(code_.get(), compiled_, text, open, where_);
    return all_matches(text, from, [&](std::size_t at) { return search.next(at); });
  }
  [[nodiscard]] bool knows_open_texts() const override { return true; }

 private:
  std::unique_ptr<pcre2_code, Free<pcre2_code_free>> code_;
  bool compiled_;  // to machine code
  std::string where_;
};

}  // namespace

std::unique_ptr<const RegexEngine> make_pcre2_engine(const std::string& pattern,
                                                     const std::string& where) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  // Multi-line because Oniguruma's ^ and $ always are; no \C, because it would split characters.
  pcre2_code* code = pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  return code == nullptr ? nullptr : std::make_unique<const Pcre2Engine>(code, where);
}

}  // namespace winnow::detail
