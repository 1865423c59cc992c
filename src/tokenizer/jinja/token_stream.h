// The tokens of a template as the parser walks them.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/jinja/lexer.h"

namespace winnow::jinja {

class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  /// The last token, `end`, is never skipped.
  [[nodiscard]] const Token& current() const { return tokens_[at_]; }
  Token next() {
    Token token = tokens_[at_];
    at_ = std::min(at_ + 1, tokens_.size() - 1);
    return token;
  }

  [[nodiscard]] bool at(Token::Kind kind) const { return current().kind == kind; }
  [[nodiscard]] bool at_op(std::string_view op) const { return is(at_, Token::Kind::op, op); }
  [[nodiscard]] bool at_name(std::string_view name) const {
    return is(at_, Token::Kind::name, name);
  }
  [[nodiscard]] bool next_is_op(std::string_view op) const {
    return is(at_ + 1, Token::Kind::op, op);
  }
  [[nodiscard]] bool next_is_name(std::string_view name) const {
    return is(at_ + 1, Token::Kind::name, name);
  }
  [[nodiscard]] bool at_any_name(std::initializer_list<std::string_view> names) const {
    return std::any_of(names.begin(), names.end(),
                       [&](std::string_view name) { return at_name(name); });
  }

  bool skip_op(std::string_view op) { return skip_if(at_op(op)); }
  bool skip_name(std::string_view name) { return skip_if(at_name(name)); }

  void expect_op(std::string_view op) {
    if (!skip_op(op)) {
      error(fmt::format("expected '{}', found {}", op, describe()));
    }
  }
  std::string expect_name() {
    if (!at(Token::Kind::name)) {
      error(fmt::format("expected a name, found {}", describe()));
    }
    return next().text;
  }
  void expect_name(std::string_view name) {
    if (!skip_name(name)) {
      error(fmt::format("expected '{}', found {}", name, describe()));
    }
  }
  void expect(Token::Kind kind, std::string_view what) {
    if (!skip_if(at(kind))) {
      error(fmt::format("expected {}, found {}", what, describe()));
    }
  }

  [[noreturn]] void error(std::string what) const {
    throw SyntaxError{current().line, std::move(what)};
  }

  [[nodiscard]] std::string describe() const {
    switch (current().kind) {
      case Token::Kind::data:
        return "text";
      case Token::Kind::variable_begin:
        return "'{{'";
      case Token::Kind::variable_end:
        return "'}}'";
      case Token::Kind::block_begin:
        return "'{%'";
      case Token::Kind::block_end:
        return "'%}'";
      case Token::Kind::string:
        return "a string";
      case Token::Kind::end:
        return "the end of the template";
      default:
        return fmt::format("'{}'", current().text);
    }
  }

 private:
  [[nodiscard]] bool is(std::size_t at, Token::Kind kind, std::string_view text) const {
    return at < tokens_.size() && tokens_[at].kind == kind && tokens_[at].text == text;
  }
  bool skip_if(bool condition) {
    if (condition) {
      next();
    }
    return condition;
  }

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
};

}  // namespace winnow::jinja
