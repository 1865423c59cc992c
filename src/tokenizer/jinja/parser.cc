#include "tokenizer/jinja/parser.h"

#include "tokenizer/jinja/expression_parser.h"

namespace winnow::jinja {
namespace {

using Kind = Token::Kind;

class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(tokenize(source)), expressions_(tokens_) {}

  Body run() {
    Body all = body({});
    if (!tokens_.at(Kind::end)) {
      tokens_.error("unexpected " + tokens_.describe());
    }
    return all;
  }

 private:
  /// Statements up to a tag named like one of `ends`, whose {% is consumed; without `ends`, up
  /// to the end of the template.
  Body body(std::initializer_list<std::string_view> ends) {
    const ExpressionParser::Nesting nesting(expressions_);
    Body statements;
    while (!tokens_.at(Kind::end)) {
      const int line = tokens_.current().line;
      if (tokens_.at(Kind::data)) {
        statements.push_back({line, Data{Value(tokens_.next().text)}});
      } else if (tokens_.at(Kind::variable_begin)) {
        tokens_.next();
        statements.push_back({line, Output{expressions_.tuple()}});
        tokens_.expect(Kind::variable_end, "'}}'");
      } else {
        tokens_.expect(Kind::block_begin, "'{%'");
        if (tokens_.at_any_name(ends)) {
          return statements;
        }
        statement(line, statements);
      }
    }
    if (ends.size() > 0) {
      tokens_.error(
          fmt::format("expected '{{% {} %}}', found the end of the template", *(ends.end() - 1)));
    }
    return statements;
  }

  /// The body up to {% end %}, which is consumed.
  Body body_until(std::string_view end) {
    tokens_.expect(Kind::block_end, "'%}'");
    Body statements = body({end});
    tokens_.expect_name(end);
    tokens_.expect(Kind::block_end, "'%}'");
    return statements;
  }

  void statement(int line, Body& into) {
    if (tokens_.skip_name("if")) {
      into.push_back({line, if_()});
    } else if (tokens_.skip_name("for")) {
      into.push_back({line, for_()});
    } else if (tokens_.skip_name("set")) {
      into.push_back(set(line));
    } else if (tokens_.skip_name("macro")) {
      into.push_back({line, macro()});
    } else if (tokens_.skip_name("call")) {
      into.push_back({line, call()});
    } else if (tokens_.skip_name("filter")) {
      ExpressionPtr filters = expressions_.filters_of_block(true);
      into.push_back({line, FilterBlock{std::move(filters), body_until("endfilter")}});
    } else if (tokens_.skip_name("with")) {
      into.push_back({line, with()});
    } else if (tokens_.skip_name("generation")) {  // marks the assistant's output, for training
      into.push_back({line, With{{}, body_until("endgeneration")}});
    } else if (tokens_.skip_name("block")) {
      into.push_back({line, block()});
    } else if (tokens_.skip_name("autoescape")) {
      ExpressionPtr escapes = expressions_.expression();
      into.push_back({line, Autoescape{std::move(escapes), body_until("endautoescape")}});
    } else if (tokens_.at_any_name({"include", "import", "from", "extends"})) {
      into.push_back({line, absent()});
    } else if (tokens_.at_any_name({"break", "continue"})) {
      into.push_back(jump(line));
    } else {
      unknown();
    }
  }

  [[noreturn]] void unknown() {
    const std::string name = tokens_.expect_name();
    constexpr std::string_view kNames[] = {"endif",    "elif",    "else",      "endfor", "endset",
                                           "endmacro", "endcall", "endfilter", "endwith"};
    const bool stray = std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
    tokens_.error(stray ? fmt::format("'{{% {} %}}' stands where nothing is open for it", name)
                        : fmt::format("the tag '{{% {} %}}' is not supported", name));
  }

  If if_() {
    If node;
    do {
      ExpressionPtr condition = expressions_.tuple(false);
      tokens_.expect(Kind::block_end, "'%}'");
      node.branches.emplace_back(std::move(condition), body({"elif", "else", "endif"}));
    } while (tokens_.skip_name("elif"));
    if (tokens_.skip_name("else")) {
      node.otherwise = body_until("endif");
    } else {
      tokens_.expect_name("endif");
      tokens_.expect(Kind::block_end, "'%}'");
    }
    return node;
  }

  For for_() {
    For node;
    node.target = expressions_.target(true, false);
    tokens_.expect_name("in");
    node.items = expressions_.tuple(false, "recursive");
    if (tokens_.skip_name("if")) {
      node.condition = expressions_.expression();
    }
    node.recursive = tokens_.skip_name("recursive");
    tokens_.expect(Kind::block_end, "'%}'");
    ++loops_;
    node.body = body({"else", "endfor"});
    --loops_;
    if (tokens_.skip_name("else")) {
      node.otherwise = body_until("endfor");
    } else {
      tokens_.expect_name("endfor");
      tokens_.expect(Kind::block_end, "'%}'");
    }
    return node;
  }

  Statement set(int line) {
    Target target = expressions_.target(true, true);
    if (tokens_.skip_op("=")) {
      ExpressionPtr value = expressions_.tuple();
      tokens_.expect(Kind::block_end, "'%}'");
      return {line, Set{std::move(target), std::move(value)}};
    }
    ExpressionPtr filters = expressions_.filters_of_block(false);
    return {line, SetBlock{std::move(target), std::move(filters), body_until("endset")}};
  }

  /// The parameters of a macro in parentheses.
  void parameters(Macro& macro) {
    tokens_.expect_op("(");
    while (!tokens_.at_op(")")) {
      std::string name = tokens_.expect_name();
      ExpressionPtr fallback;
      if (tokens_.skip_op("=")) {
        fallback = expressions_.expression();
      } else if (!macro.parameters.empty() && macro.parameters.back().second != nullptr) {
        tokens_.error(fmt::format("the parameter '{}' follows one with a default", name));
      }
      macro.parameters.emplace_back(std::move(name), std::move(fallback));
      if (!tokens_.at_op(")")) {
        tokens_.expect_op(",");
      }
    }
    tokens_.expect_op(")");
  }

  void macro_body(Macro& macro, std::string_view end) {
    const ExpressionParser::MacroUse outer = std::exchange(expressions_.macro_use, {});
    const int outer_loops = std::exchange(loops_, 0);
    macro.body = body_until(end);
    loops_ = outer_loops;
    macro.uses_varargs = expressions_.macro_use.varargs;
    macro.uses_kwargs = expressions_.macro_use.kwargs;
    macro.uses_caller = expressions_.macro_use.caller;
    expressions_.macro_use = outer;
  }

  MacroDefinition macro() {
    auto node = std::make_shared<Macro>();
    node->name = tokens_.expect_name();
    parameters(*node);
    macro_body(*node, "endmacro");
    return {std::move(node)};
  }

  CallBlock call() {
    auto node = std::make_shared<Macro>();
    node->name = "caller";
    if (tokens_.at_op("(")) {
      parameters(*node);
    }
    ExpressionPtr callee = expressions_.expression();
    if (!std::holds_alternative<Call>(callee->node)) {
      tokens_.error("expected a call in '{% call %}'");
    }
    macro_body(*node, "endcall");
    return {std::move(node), std::move(callee)};
  }

  With with() {
    With node;
    while (!tokens_.at(Kind::block_end)) {
      Target target = expressions_.target(false, false);
      tokens_.expect_op("=");
      node.variables.emplace_back(std::move(target), expressions_.expression());
      if (!tokens_.at(Kind::block_end)) {
        tokens_.expect_op(",");
      }
    }
    node.body = body_until("endwith");
    return node;
  }

  /// A block is rendered in place: nothing can extend a chat template.
  With block() {
    const std::string name = tokens_.expect_name();
    while (tokens_.at_any_name({"scoped", "required"})) {
      tokens_.next();
    }
    tokens_.expect(Kind::block_end, "'%}'");
    With node{{}, body({"endblock"})};
    tokens_.expect_name("endblock");
    tokens_.skip_name(name);
    tokens_.expect(Kind::block_end, "'%}'");
    return node;
  }

  Absent absent() {
    Absent node{tokens_.next().text};
    while (!tokens_.at(Kind::block_end) && !tokens_.at(Kind::end)) {
      tokens_.next();
    }
    tokens_.expect(Kind::block_end, "'%}'");
    return node;
  }

  Statement jump(int line) {
    if (loops_ == 0) {
      tokens_.error(fmt::format("'{}' stands outside of a loop", tokens_.current().text));
    }
    const bool is_break = tokens_.next().text == "break";
    tokens_.expect(Kind::block_end, "'%}'");
    if (is_break) {
      return {line, Break{}};
    }
    return {line, Continue{}};
  }

  TokenStream tokens_;
  ExpressionParser expressions_;
  int loops_ = 0;
};

}  // namespace

Body parse(std::string_view source) {
  return Parser(source).run();
}

}  // namespace winnow::jinja
