// A parsed template.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tokenizer/jinja/builtins.h"
#include "tokenizer/jinja/value.h"

namespace winnow::jinja {

struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<const Expression>;
using Body = std::vector<Statement>;

// Expressions

struct Constant {
  Value value;
};
struct Name {
  std::string name;
};
struct Attribute {
  ExpressionPtr object;
  std::string name;
};
struct Index {
  ExpressionPtr object, index;
};
struct Slice {  // object[start:stop:step]; null: part left out
  ExpressionPtr object, start, stop, step;
};
struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr more_positional, more_named;  // *args, **kwargs; may be null
};
struct Call {
  ExpressionPtr callee;
  CallArguments arguments;
};
struct FilterCall {  // a null input is the text of the filter's block
  ExpressionPtr input;
  std::string name;
  Filter filter = nullptr;  // null: unknown name, an error when it is called
  CallArguments arguments;
};
struct TestCall {
  ExpressionPtr input;
  std::string name;
  Test test = nullptr;  // null: unknown name
  CallArguments arguments;
};
enum class Operator : std::uint8_t {
  add,
  subtract,
  multiply,
  divide,
  floor_divide,
  modulo,
  power,
  equal,
  not_equal,
  less,
  less_equal,
  greater,
  greater_equal,
  in,
  not_in,
};
struct Binary {
  Operator op = Operator::add;
  ExpressionPtr left, right;
};
struct Comparison {  // a < b < c
  ExpressionPtr first;
  std::vector<std::pair<Operator, ExpressionPtr>> rest;
};
struct Sign {
  bool negative = false;
  ExpressionPtr operand;
};
struct Not {
  ExpressionPtr operand;
};
struct Logic {
  bool is_and = false;
  ExpressionPtr left, right;
};
struct Concatenation {
  std::vector<ExpressionPtr> parts;
};
struct Conditional {  // without an else, the value is undefined
  ExpressionPtr condition, then, otherwise;
};
struct ListDisplay {
  Sequence::Kind kind = Sequence::Kind::list;
  std::vector<ExpressionPtr> items;
};
struct DictDisplay {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};

struct Expression {
  int line = 0;
  std::variant<Constant, Name, Attribute, Index, Slice, Call, FilterCall, TestCall, Binary,
               Comparison, Sign, Not, Logic, Concatenation, Conditional, ListDisplay, DictDisplay>
      node;
};

template <class Node>
ExpressionPtr make(int line, Node node) {
  return std::make_unique<const Expression>(Expression{line, std::move(node)});
}

// Statements

/// The target of an assignment: a name, an attribute of a namespace, or a tuple of targets.
struct Target {
  std::string name;
  std::string attribute;      // empty: the name itself
  std::vector<Target> parts;  // of a tuple, whose other fields are empty
  bool is_tuple = false;
};

struct Data {
  Value text;
};
struct Output {
  ExpressionPtr expression;
};
struct If {
  std::vector<std::pair<ExpressionPtr, Body>> branches;
  Body otherwise;
};
struct For {
  Target target;
  ExpressionPtr items;
  ExpressionPtr condition;  // null: take all
  Body body, otherwise;
  bool recursive = false;
};
struct Set {
  Target target;
  ExpressionPtr value;
};
struct SetBlock {  // {% set x %}...{% endset %}
  Target target;
  ExpressionPtr filters;  // null: the text itself
  Body body;
};
struct FilterBlock {
  ExpressionPtr filters;
  Body body;
};
struct With {
  std::vector<std::pair<Target, ExpressionPtr>> variables;
  Body body;
};
/// A macro, and the body of a {% call %}.
struct Macro {
  std::string name;
  std::vector<std::pair<std::string, ExpressionPtr>> parameters;  // null default: none
  Body body;
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
};
struct MacroDefinition {
  std::shared_ptr<const Macro> macro;
};
struct CallBlock {
  std::shared_ptr<const Macro> body;
  ExpressionPtr call;
};
struct Autoescape {
  ExpressionPtr escapes;
  Body body;
};
struct Absent {  // a tag that needs other templates, which do not exist
  std::string tag;
};
struct Break {};
struct Continue {};

struct Statement {
  int line = 0;
  std::variant<Data, Output, If, For, Set, SetBlock, FilterBlock, With, MacroDefinition, CallBlock,
               Autoescape, Absent, Break, Continue>
      node;
};

}  // namespace winnow::jinja
