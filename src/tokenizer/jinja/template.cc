#include "tokenizer/jinja/template.h"

#include "base/error.h"
#include "tokenizer/jinja/interpreter.h"
#include "tokenizer/jinja/lexer.h"
#include "tokenizer/jinja/parser.h"
#include "tokenizer/utf8.h"

namespace winnow::jinja {

namespace {

/// Makes an error one line, even if the template or the messages contain line breaks.
[[noreturn]] void fail_at(const std::string& name, int line, std::string what) {
  constexpr std::size_t kLongest = 1000;
  if (what.size() > kLongest) {
    what = to_valid_utf8(what.substr(0, kLongest)) + " ...";
  }
  for (char& c : what) {
    c = c == '\n' || c == '\r' ? ' ' : c;
  }
  fail("{}:{}: {}", name, line, what);
}

}  // namespace

struct Template::Tree {
  Body body;
};

Template::Template(std::string_view source, std::string name) : name_(std::move(name)) {
  try {
    tree_ = std::make_unique<const Tree>(Tree{parse(to_valid_utf8(source))});
  } catch (const SyntaxError& error) {
    fail_at(name_, error.line, error.what);
  }
}

Template::~Template() = default;
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;

std::string Template::render(Variables variables, std::time_t now) const {
  Runtime runtime(now);
  Interpreter interpreter(runtime, Scope{nullptr, std::move(variables)});
  try {
    return interpreter.render(tree_->body);
  } catch (const Error& error) {
    fail_at(name_, interpreter.line(), error.what());
  }
}

}  // namespace winnow::jinja
