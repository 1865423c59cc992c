// Evaluates a template's tree.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/jinja/ast.h"
#include "tokenizer/jinja/runtime.h"

namespace winnow::jinja {

/// Variables by name; other names are looked up in the enclosing scopes.
struct Scope {
  std::shared_ptr<const Scope> outer;
  std::vector<std::pair<std::string, Value>> variables;

  void set(std::string_view name, Value value);
  /// nullptr when neither this nor an outer scope has it.
  [[nodiscard]] const Value* find(std::string_view name) const;
};

/// One rendering. Errors are Error without a location; line() is where the latest one occurred.
class Interpreter {
 public:
  Interpreter(Runtime& runtime, Scope variables)
      : runtime_(runtime), scope_(std::make_shared<Scope>(std::move(variables))) {}

  std::string render(const Body& body);
  [[nodiscard]] int line() const { return line_; }

  // Expressions: std::visit calls these.
  Value operator()(const Constant& node) { return node.value; }
  Value operator()(const Name& node);
  Value operator()(const Attribute& node);
  Value operator()(const Index& node);
  Value operator()(const Slice& node);
  Value operator()(const Call& node);
  Value operator()(const FilterCall& node);
  Value operator()(const TestCall& node);
  Value operator()(const Binary& node);
  Value operator()(const Comparison& node);
  Value operator()(const Sign& node);
  Value operator()(const Not& node);
  Value operator()(const Logic& node);
  Value operator()(const Concatenation& node);
  Value operator()(const Conditional& node);
  Value operator()(const ListDisplay& node);
  Value operator()(const DictDisplay& node);

  /// How a statement ends.
  enum class Flow : std::uint8_t { normal, stop, next };

  Flow operator()(const Data& node);
  Flow operator()(const Output& node);
  Flow operator()(const If& node);
  Flow operator()(const For& node);
  Flow operator()(const Set& node);
  Flow operator()(const SetBlock& node);
  Flow operator()(const FilterBlock& node);
  Flow operator()(const With& node);
  Flow operator()(const MacroDefinition& node);
  Flow operator()(const CallBlock& node);
  Flow operator()(const Autoescape& node);
  Flow operator()(const Absent& node);
  Flow operator()(const Break&) { return Flow::stop; }
  Flow operator()(const Continue&) { return Flow::next; }

 private:
  class Inner;  // opens an inner scope during its lifetime

  Value evaluate(const Expression& expression);
  /// evaluate(), or none for null.
  Value evaluate_part(const ExpressionPtr& expression);
  Arguments evaluate(const CallArguments& arguments);
  void add_more(const CallArguments& from, Arguments& to);
  Value call(const Value& callee, const Arguments& arguments);

  Flow run(const Body& body);
  /// The output of `body`, in its own scope.
  std::string capture(const Body& body);
  void print(std::string_view text);
  void assign(const Target& target, const Value& value);
  std::vector<Value> items_of(const For& node, const Value& from);
  Flow run_loop(const For& node, const Value& from, int depth);
  std::string recurse(const For& node, const std::weak_ptr<const Scope>& scope, const Value& from,
                      int depth);

  Value make_macro(const std::shared_ptr<const Macro>& macro);
  Value call_macro(const Macro& macro, const std::shared_ptr<const Scope>& scope,
                   const Arguments& arguments);
  void bind(const Macro& macro, const Arguments& arguments);

  Runtime& runtime_;
  std::shared_ptr<Scope> scope_;
  std::string* out_ = nullptr;
  Value block_text_;  // the input of a block's filters
  int line_ = 1;
};

}  // namespace winnow::jinja
