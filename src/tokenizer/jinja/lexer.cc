#include "tokenizer/jinja/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "tokenizer/jinja/lexer_literal.h"
#include "tokenizer/jinja/text.h"
#include "tokenizer/utf8.h"

namespace winnow::jinja {
namespace {

using Kind = Token::Kind;

/// Line ends become \n; one at the very end is removed (Jinja's keep_trailing_newline=False).
std::string normalized(std::string_view source) {
  std::string text = replace(replace(source, "\r\n", "\n", -1), "\r", "\n", -1);
  if (text.ends_with('\n')) {
    text.pop_back();
  }
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) {
      lex_root();
    }
    add(Kind::end, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void error(std::string what) const { throw SyntaxError{line_, std::move(what)}; }
  [[nodiscard]] std::string_view rest() const { return source_.substr(at_); }
  [[nodiscard]] bool looking_at(std::string_view text) const { return rest().starts_with(text); }

  void add(Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  /// Skips `count` bytes and counts lines.
  void advance(std::size_t count) {
    const std::string_view passed = rest().substr(0, count);
    line_ += static_cast<int>(std::count(passed.begin(), passed.end(), '\n'));
    line_starts_ = passed.ends_with('\n');
    at_ += count;
  }

  void skip_space() { advance(rest().size() - strip(rest(), Ends::left).size()); }

  [[nodiscard]] std::size_t next_tag() const {
    for (std::size_t i = at_; i + 1 < source_.size(); ++i) {
      if (source_[i] == '{' &&
          (source_[i + 1] == '{' || source_[i + 1] == '%' || source_[i + 1] == '#')) {
        return i;
      }
    }
    return source_.size();
  }

  /// Adds the text up to the tag at `end`, trimmed as the tag's sign and lstrip_blocks say.
  void add_data(std::size_t end, bool strips_blanks) {
    std::string_view data = source_.substr(at_, end - at_);
    const char sign = end + 2 < source_.size() ? source_[end + 2] : '\0';
    if (end < source_.size() && sign == '-') {
      data = strip(data, Ends::right);
    } else if (end < source_.size() && sign != '+' && strips_blanks) {
      const std::size_t line = data.rfind('\n') + 1;  // npos + 1 is 0
      if ((line > 0 || line_starts_) && strip(data.substr(line), Ends::left).empty()) {
        data = data.substr(0, line);
      }
    }
    if (!data.empty()) {
      add(Kind::data, std::string(data));
    }
    advance(end - at_);
  }

  void lex_root() {
    const std::size_t tag = next_tag();
    const char type = tag < source_.size() ? source_[tag + 1] : '\0';
    add_data(tag, type != '{');
    if (tag == source_.size()) {
      return;
    }
    if (type == '%' && lex_raw()) {
      return;
    }
    const int line = line_;
    advance(2);
    if (looking_at("-") || looking_at("+")) {
      advance(1);
    }
    if (type == '#') {
      lex_comment(line);
    } else {
      tokens_.push_back({type == '{' ? Kind::variable_begin : Kind::block_begin, "", line});
      lex_tag(type == '{');
    }
  }

  void lex_comment(int line) {
    const std::size_t end = source_.find("#}", at_);
    if (end == std::string_view::npos) {
      throw SyntaxError{line, "a comment has no end"};
    }
    const char sign = end > at_ ? source_[end - 1] : '\0';
    advance(end - at_);
    close(sign, true);
  }

  /// Skips the two characters of a tag's end and the white space that they remove.
  void close(char sign, bool trims_newline) {
    advance(2);
    if (sign == '-') {
      skip_space();
    } else if (sign != '+' && trims_newline && looking_at("\n")) {
      advance(1);
    }
  }

  /// {% raw %} ... {% endraw %}; false if this is something else.
  bool lex_raw() {
    std::string_view tag = rest().substr(2);
    if (tag.starts_with('-') || tag.starts_with('+')) {
      tag.remove_prefix(1);
    }
    tag = strip(tag, Ends::left);
    if (!tag.starts_with("raw")) {
      return false;
    }
    tag = strip(tag.substr(3), Ends::left);
    if (!tag.starts_with("%}") && !tag.starts_with("-%}")) {
      return false;
    }
    const char sign = tag.front();
    advance(rest().size() - tag.size() + (sign == '-' ? 1 : 0));
    close(sign, false);
    lex_raw_body();
    return true;
  }

  void lex_raw_body() {
    for (std::size_t i = at_; (i = source_.find("{%", i)) != std::string_view::npos; i += 2) {
      std::string_view tag = source_.substr(i + 2);
      if (tag.starts_with('-') || tag.starts_with('+')) {
        tag.remove_prefix(1);
      }
      tag = strip(tag, Ends::left);
      if (!tag.starts_with("endraw")) {
        continue;
      }
      tag = strip(tag.substr(6), Ends::left);
      const char sign = tag.empty() ? '\0' : tag.front();
      if (tag.starts_with("%}") ||
          ((sign == '-' || sign == '+') && tag.substr(1).starts_with("%}"))) {
        add_data(i, true);
        advance(rest().size() - tag.size() + (sign == '%' ? 0 : 1));
        close(sign, true);
        return;
      }
    }
    error("a raw block has no end");
  }

  /// The inside of {{ }} or {% %}, including its end.
  void lex_tag(bool variable) {
    const std::string_view end = variable ? "}}" : "%}";
    while (at_ < source_.size()) {
      if (open_.empty() && lex_tag_end(end, variable)) {
        return;
      }
      if (is_space(utf8_step(rest()).code)) {
        skip_space();
      } else if (!lex_literal()) {
        lex_operator();
      }
    }
    error(fmt::format("a tag has no end: expected '{}'", end));
  }

  bool lex_tag_end(std::string_view end, bool variable) {
    const char sign = looking_at("-") || (!variable && looking_at("+")) ? source_[at_] : '\0';
    if (!rest().substr(sign == '\0' ? 0 : 1).starts_with(end)) {
      return false;
    }
    add(variable ? Kind::variable_end : Kind::block_end, "");
    advance(sign == '\0' ? 0 : 1);
    close(sign, !variable);
    return true;
  }

  bool lex_literal() {
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    std::optional<Literal> literal = scan_literal(rest(), after_dot);
    if (!literal) {
      return false;
    }
    if (!literal->error.empty()) {
      error(literal->error);
    }
    add(literal->kind, std::move(literal->text));
    advance(literal->length);
    return true;
  }

  void lex_operator() {
    constexpr std::array<std::string_view, 26> kOperators{
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    const auto* op = std::find_if(kOperators.begin(), kOperators.end(),
                                  [&](std::string_view o) { return looking_at(o); });
    if (op == kOperators.end()) {
      error(fmt::format("unexpected '{}'", rest().substr(0, utf8_length(rest().front()))));
    }
    balance(op->front());
    add(Kind::op, std::string(*op));
    advance(op->size());
  }

  void balance(char bracket) {
    constexpr std::string_view kOpening = "([{";
    constexpr std::string_view kClosing = ")]}";
    if (kOpening.find(bracket) != std::string_view::npos) {
      open_ += kClosing[kOpening.find(bracket)];
    } else if (kClosing.find(bracket) != std::string_view::npos) {
      if (open_.empty() || open_.back() != bracket) {
        error(open_.empty() ? fmt::format("unexpected '{}'", bracket)
                            : fmt::format("unexpected '{}', expected '{}'", bracket, open_.back()));
      }
      open_.pop_back();
    }
  }

  std::string_view source_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;  // the text so far ends with a newline
  std::string open_;         // open brackets
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  const std::string text = normalized(source);
  return Lexer(text).run();
}

}  // namespace winnow::jinja
