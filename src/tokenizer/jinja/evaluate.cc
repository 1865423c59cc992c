// Expressions.
#include "tokenizer/jinja/arguments.h"
#include "tokenizer/jinja/builtins.h"
#include "tokenizer/jinja/interpreter.h"
#include "tokenizer/jinja/operators.h"
#include "tokenizer/jinja/print.h"

namespace winnow::jinja {

Value Interpreter::evaluate(const Expression& expression) {
  const Runtime::Level level(runtime_);
  runtime_.spend(1);
  const int outer = std::exchange(line_, expression.line);
  Value value = std::visit(*this, expression.node);
  line_ = outer;  // an error keeps the line where it occurred
  return value;
}

Value Interpreter::evaluate_part(const ExpressionPtr& expression) {
  return expression == nullptr ? Value(None{}) : evaluate(*expression);
}

Arguments Interpreter::evaluate(const CallArguments& arguments) {
  Arguments values;
  for (const ExpressionPtr& argument : arguments.positional) {
    values.positional.push_back(evaluate(*argument));
  }
  for (const auto& [name, argument] : arguments.named) {
    values.named.emplace_back(name, evaluate(*argument));
  }
  add_more(arguments, values);
  return values;
}

/// *args and **kwargs.
void Interpreter::add_more(const CallArguments& from, Arguments& to) {
  if (from.more_positional != nullptr) {
    for (Value& value : iterate(runtime_, evaluate(*from.more_positional))) {
      to.positional.push_back(std::move(value));
    }
  }
  if (from.more_named != nullptr) {
    const Value more = evaluate(*from.more_named);
    require(more.mapping() != nullptr, "what follows ** is a {}, not a dict", type_name(more));
    for (const auto& [name, value] : more.mapping()->entries) {
      require(name.text() != nullptr, "the names of arguments are strings");
      to.named.emplace_back(*name.text(), value);
    }
  }
}

Value Interpreter::call(const Value& callee, const Arguments& arguments) {
  require_defined(callee);
  if (const Loop* loop = callee.loop()) {
    require(loop->run->recurse != nullptr, "only the loop of a recursive for can be called");
    const Bound bound("loop", arguments, {"iterable"});
    return loop->run->recurse(bound.value(0));
  }
  require(callee.callable() != nullptr && callee.callable()->function, "a {} cannot be called",
          type_name(callee));
  return callee.callable()->function(runtime_, arguments);
}

Value Interpreter::operator()(const Name& node) {
  if (const Value* value = scope_->find(node.name)) {
    return *value;
  }
  Value function = find_function(node.name);
  return function.is_undefined() ? Value::undefined(fmt::format("'{}' is undefined", node.name))
                                 : function;
}

Value Interpreter::operator()(const Attribute& node) {
  const Value object = evaluate(*node.object);
  return attribute_of(object, node.name);
}

Value Interpreter::operator()(const Index& node) {
  const Value object = evaluate(*node.object);
  return element_of(runtime_, object, evaluate(*node.index));
}

Value Interpreter::operator()(const Slice& node) {
  const Value object = evaluate(*node.object);
  const Value start = evaluate_part(node.start);
  const Value stop = evaluate_part(node.stop);
  return slice_of(runtime_, object, start, stop, evaluate_part(node.step));
}

Value Interpreter::operator()(const Call& node) {
  const Value callee = evaluate(*node.callee);
  const Arguments arguments = evaluate(node.arguments);
  return call(callee, arguments);
}

Value Interpreter::operator()(const FilterCall& node) {
  require(node.filter != nullptr, "no filter is named '{}'", node.name);
  const Value input = node.input == nullptr ? block_text_ : evaluate(*node.input);
  const Arguments arguments = evaluate(node.arguments);
  runtime_.spend(extent_of(input).weight / 8);
  return node.filter(runtime_, input, arguments);
}

Value Interpreter::operator()(const TestCall& node) {
  require(node.test != nullptr, "no test is named '{}'", node.name);
  const Value input = evaluate(*node.input);
  const Arguments arguments = evaluate(node.arguments);
  return node.test(runtime_, input, arguments);
}

Value Interpreter::operator()(const Binary& node) {
  const Value left = evaluate(*node.left);
  return arithmetic(runtime_, node.op, left, evaluate(*node.right));
}

Value Interpreter::operator()(const Comparison& node) {
  Value left = evaluate(*node.first);
  for (const auto& [op, expression] : node.rest) {
    Value right = evaluate(*expression);
    if (!compare(runtime_, op, left, right)) {
      return false;
    }
    left = std::move(right);
  }
  return true;
}

Value Interpreter::operator()(const Sign& node) {
  return signed_value(node.negative, evaluate(*node.operand));
}

Value Interpreter::operator()(const Not& node) {
  return !truthy(evaluate(*node.operand));
}

Value Interpreter::operator()(const Logic& node) {
  Value left = evaluate(*node.left);
  return truthy(left) == node.is_and ? evaluate(*node.right) : left;
}

Value Interpreter::operator()(const Concatenation& node) {
  std::string text;
  for (const ExpressionPtr& part : node.parts) {
    text += to_text(runtime_, evaluate(*part));
    runtime_.spend_text(text.size());
  }
  return text;
}

Value Interpreter::operator()(const Conditional& node) {
  if (truthy(evaluate(*node.condition))) {
    return evaluate(*node.then);
  }
  return node.otherwise != nullptr
             ? evaluate(*node.otherwise)
             : Value::undefined("the condition of an if without else is false");
}

Value Interpreter::operator()(const ListDisplay& node) {
  runtime_.spend_items(node.items.size());
  std::vector<Value> items;
  for (const ExpressionPtr& item : node.items) {
    items.push_back(evaluate(*item));
  }
  return make_sequence(std::move(items), node.kind);
}

Value Interpreter::operator()(const DictDisplay& node) {
  runtime_.spend_items(node.entries.size() * 2);
  Mapping::Entries entries;
  for (const auto& [key, value] : node.entries) {
    Value name = evaluate(*key);
    entries.emplace_back(std::move(name), evaluate(*value));
  }
  return make_mapping(std::move(entries));
}

}  // namespace winnow::jinja
