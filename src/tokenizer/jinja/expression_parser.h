// The expressions of a template, by recursive descent; one function per level of precedence.
#pragma once

#include <string>
#include <vector>

#include "tokenizer/jinja/ast.h"
#include "tokenizer/jinja/token_stream.h"

namespace winnow::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& tokens) : tokens_(tokens) {}

  /// One expression; without `conditional`, "a if b else c" is not allowed.
  ExpressionPtr expression(bool conditional = true);
  /// Expressions with commas between them form a tuple. It ends before the name `end_name`.
  ExpressionPtr tuple(bool conditional = true, std::string_view end_name = {});
  /// a|b|c applied to a block's text; with `inline_start`, no bar precedes the first name.
  ExpressionPtr filters_of_block(bool inline_start);
  /// The target of a for or set; commas form a tuple.
  Target target(bool with_tuple, bool with_attribute);

  /// The special names that the macro being parsed uses.
  struct MacroUse {
    bool varargs = false, kwargs = false, caller = false;
  };
  MacroUse macro_use;

  /// A level of nesting of the tree during its lifetime, more with deeper(): limits the tree's
  /// depth, so that it can be walked.
  class Nesting {
   public:
    explicit Nesting(ExpressionParser& parser, int levels = 1) : parser_(parser) { deeper(levels); }
    ~Nesting() { parser_.depth_ -= added_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;
    void deeper(int levels = 1);

   private:
    ExpressionParser& parser_;
    int added_ = 0;
  };

 private:
  ExpressionPtr conditional();
  ExpressionPtr disjunction();
  ExpressionPtr conjunction();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filter);
  ExpressionPtr primary();
  ExpressionPtr name_or_constant();
  ExpressionPtr number();
  ExpressionPtr string();
  ExpressionPtr list();
  ExpressionPtr dict();
  ExpressionPtr postfix(ExpressionPtr object);
  ExpressionPtr filters(ExpressionPtr input);
  ExpressionPtr attribute(ExpressionPtr object);
  ExpressionPtr subscript(ExpressionPtr object);
  ExpressionPtr call(ExpressionPtr callee);
  ExpressionPtr filter(ExpressionPtr input);
  ExpressionPtr test(ExpressionPtr input);
  CallArguments test_arguments();
  CallArguments arguments();
  void argument(CallArguments& arguments);
  Target target_part(bool with_attribute);
  [[nodiscard]] bool at_tuple_end(std::string_view end_name) const;
  [[nodiscard]] int line() const { return tokens_.current().line; }

  TokenStream& tokens_;
  int depth_ = 0;
};

}  // namespace winnow::jinja
