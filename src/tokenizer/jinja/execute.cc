// Statements and macros.
#include <algorithm>

#include "tokenizer/jinja/interpreter.h"
#include "tokenizer/jinja/operators.h"
#include "tokenizer/jinja/print.h"

namespace winnow::jinja {

void Scope::set(std::string_view name, Value value) {
  for (auto& [key, old] : variables) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  variables.emplace_back(name, std::move(value));
}

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->outer.get()) {
    for (const auto& [key, value] : scope->variables) {
      if (key == name) {
        return &value;
      }
    }
  }
  return nullptr;
}

class Interpreter::Inner {
 public:
  Inner(Interpreter& interpreter, std::shared_ptr<const Scope> outer)
      : interpreter_(interpreter), saved_(std::move(interpreter.scope_)) {
    interpreter_.scope_ = std::make_shared<Scope>(Scope{std::move(outer), {}});
  }
  explicit Inner(Interpreter& interpreter) : Inner(interpreter, interpreter.scope_) {}
  ~Inner() { interpreter_.scope_ = std::move(saved_); }
  Inner(const Inner&) = delete;
  Inner& operator=(const Inner&) = delete;

 private:
  Interpreter& interpreter_;
  std::shared_ptr<Scope> saved_;
};

std::string Interpreter::render(const Body& body) {
  std::string text;
  out_ = &text;
  run(body);
  return text;
}

void Interpreter::print(std::string_view text) {
  runtime_.spend_text(out_->size() + text.size() > Runtime::kMaxText ? Runtime::kMaxText + 1
                                                                     : text.size());
  *out_ += text;
}

Interpreter::Flow Interpreter::run(const Body& body) {
  const Runtime::Level level(runtime_);
  for (const Statement& statement : body) {
    runtime_.spend(1);
    line_ = statement.line;
    const Flow flow =
        std::visit([this](const auto& node) { return (*this)(node); }, statement.node);
    if (flow != Flow::normal) {
      return flow;
    }
  }
  return Flow::normal;
}

std::string Interpreter::capture(const Body& body) {
  const Inner inner(*this);
  std::string text;
  std::string* const outer = std::exchange(out_, &text);
  run(body);
  out_ = outer;
  return text;
}

void Interpreter::assign(const Target& target, const Value& value) {
  if (target.is_tuple) {
    const std::vector<Value> items = iterate(runtime_, value);
    require(items.size() == target.parts.size(), "{} values do not go into {} names", items.size(),
            target.parts.size());
    for (std::size_t i = 0; i < items.size(); ++i) {
      assign(target.parts[i], items[i]);
    }
  } else if (target.attribute.empty()) {
    scope_->set(target.name, value);
  } else {
    const Value* space = scope_->find(target.name);
    require(space != nullptr, "'{}' is undefined", target.name);
    require(space->space() != nullptr, "only a namespace can have its attributes set, not a {}",
            type_name(*space));
    space->space()->set(target.attribute, value);
  }
}

Interpreter::Flow Interpreter::operator()(const Data& node) {
  print(*node.text.text());
  return Flow::normal;
}

Interpreter::Flow Interpreter::operator()(const Output& node) {
  print(to_text(runtime_, evaluate(*node.expression)));
  return Flow::normal;
}

Interpreter::Flow Interpreter::operator()(const If& node) {
  for (const auto& [condition, body] : node.branches) {
    if (truthy(evaluate(*condition))) {
      return run(body);
    }
  }
  return run(node.otherwise);
}

/// The items that the loop iterates over, after its own `if`.
std::vector<Value> Interpreter::items_of(const For& node, const Value& from) {
  std::vector<Value> items = iterate(runtime_, from);
  if (node.condition != nullptr) {
    std::erase_if(items, [&](const Value& item) {
      const Inner inner(*this);
      assign(node.target, item);
      return !truthy(evaluate(*node.condition));
    });
  }
  return items;
}

Interpreter::Flow Interpreter::operator()(const For& node) {
  return run_loop(node, evaluate(*node.items), 1);
}

Interpreter::Flow Interpreter::run_loop(const For& node, const Value& from, int depth) {
  auto run = std::make_shared<LoopRun>();
  run->items.items = items_of(node, from);
  run->depth = depth;
  if (node.recursive) {
    run->recurse = [this, &node, depth, scope = std::weak_ptr<const Scope>(scope_)](
                       const Value& items) { return recurse(node, scope, items, depth + 1); };
  }
  const std::size_t count = run->items.items.size();
  if (count == 0) {
    const Inner inner(*this);
    return this->run(node.otherwise);
  }
  for (std::size_t i = 0; i < count; ++i) {
    runtime_.spend(4);
    const Inner inner(*this);
    scope_->set("loop", std::make_shared<const Loop>(Loop{run, i}));
    assign(node.target, run->items.items[i]);
    if (this->run(node.body) == Flow::stop) {
      break;
    }
  }
  return Flow::normal;
}

/// The result of loop(items): the loop's text again, in the scope of the loop.
std::string Interpreter::recurse(const For& node, const std::weak_ptr<const Scope>& scope,
                                 const Value& from, int depth) {
  const std::shared_ptr<const Scope> outer = scope.lock();
  require(outer != nullptr, "a loop is called after it has ended");
  const Runtime::Level level(runtime_);
  const int line = line_;
  const Inner inner(*this, outer);
  std::string text;
  std::string* const out = std::exchange(out_, &text);
  run_loop(node, from, depth);
  out_ = out;
  line_ = line;
  return text;
}

Interpreter::Flow Interpreter::operator()(const Set& node) {
  assign(node.target, evaluate(*node.value));
  return Flow::normal;
}

Interpreter::Flow Interpreter::operator()(const SetBlock& node) {
  Value text = capture(node.body);
  if (node.filters != nullptr) {
    const Value outer = std::exchange(block_text_, std::move(text));
    text = evaluate(*node.filters);
    block_text_ = outer;
  }
  assign(node.target, text);
  return Flow::normal;
}

Interpreter::Flow Interpreter::operator()(const FilterBlock& node) {
  const Value outer = std::exchange(block_text_, capture(node.body));
  const Value text = evaluate(*node.filters);
  block_text_ = outer;
  print(to_text(runtime_, text));
  return Flow::normal;
}

Interpreter::Flow Interpreter::operator()(const With& node) {
  std::vector<Value> values;
  for (const auto& variable : node.variables) {
    values.push_back(evaluate(*variable.second));
  }
  const Inner inner(*this);
  for (std::size_t i = 0; i < values.size(); ++i) {
    assign(node.variables[i].first, values[i]);
  }
  return run(node.body);
}

Interpreter::Flow Interpreter::operator()(const MacroDefinition& node) {
  scope_->set(node.macro->name, make_macro(node.macro));
  return Flow::normal;
}

Interpreter::Flow Interpreter::operator()(const CallBlock& node) {
  const auto& target = std::get<Call>(node.call->node);
  const Value callee = evaluate(*target.callee);
  Arguments arguments = evaluate(target.arguments);
  arguments.named.emplace_back("caller", make_macro(node.body));
  print(to_text(runtime_, call(callee, arguments)));
  return Flow::normal;
}

Interpreter::Flow Interpreter::operator()(const Autoescape& node) {
  require(!truthy(evaluate(*node.escapes)), "{{% autoescape true %}} is not supported");
  const Inner inner(*this);
  return run(node.body);
}

Interpreter::Flow Interpreter::operator()(const Absent& node) {
  fail("{{% {} %}} needs another template, but a chat template is a single file", node.tag);
}

/// The macro sees the scope it is defined in, but does not keep it alive: the scope holds the
/// macro.
Value Interpreter::make_macro(const std::shared_ptr<const Macro>& macro) {
  return make_callable(macro->name,
                       [this, macro, scope = std::weak_ptr<const Scope>(scope_)](
                           Runtime&, const Arguments& arguments) -> Value {
                         const std::shared_ptr<const Scope> outer = scope.lock();
                         require(outer != nullptr,
                                 "the macro '{}' is called after its block has ended", macro->name);
                         return call_macro(*macro, outer, arguments);
                       });
}

Value Interpreter::call_macro(const Macro& macro, const std::shared_ptr<const Scope>& scope,
                              const Arguments& arguments) {
  const Runtime::Level level(runtime_);
  const int line = line_;
  const Inner inner(*this, scope);
  bind(macro, arguments);
  std::string text;
  std::string* const outer = std::exchange(out_, &text);
  run(macro.body);
  out_ = outer;
  line_ = line;
  return text;
}

/// Parameters take positional arguments, then named ones, then their defaults.
void Interpreter::bind(const Macro& macro, const Arguments& arguments) {
  const std::size_t count = macro.parameters.size();
  auto named = arguments.named;
  const auto take = [&](std::string_view name) -> std::optional<Value> {
    const auto found = std::find_if(named.begin(), named.end(),
                                    [&](const auto& argument) { return argument.first == name; });
    if (found == named.end()) {
      return std::nullopt;
    }
    Value value = found->second;
    named.erase(found);
    return value;
  };
  for (std::size_t i = 0; i < count; ++i) {
    const auto& [name, fallback] = macro.parameters[i];
    if (i < arguments.positional.size()) {
      scope_->set(name, arguments.positional[i]);
    } else if (const std::optional<Value> value = take(name)) {
      scope_->set(name, *value);
    } else {
      scope_->set(name, fallback != nullptr ? evaluate(*fallback)
                                            : Value::undefined(fmt::format(
                                                  "parameter '{}' was not provided", name)));
    }
  }
  if (macro.uses_caller) {
    scope_->set("caller", take("caller").value_or(Value::undefined("no caller defined")));
  }
  std::vector<Value> rest(arguments.positional.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                             count, arguments.positional.size())),
                          arguments.positional.end());
  require(rest.empty() || macro.uses_varargs, "the macro '{}' takes not more than {} arguments",
          macro.name, count);
  require(named.empty() || macro.uses_kwargs, "the macro '{}' takes no argument '{}'", macro.name,
          named.empty() ? "" : named.front().first);
  Mapping::Entries entries;
  for (auto& [name, value] : named) {
    entries.emplace_back(std::move(name), std::move(value));
  }
  if (macro.uses_varargs) {
    scope_->set("varargs", make_sequence(std::move(rest), Sequence::Kind::tuple));
  }
  if (macro.uses_kwargs) {
    scope_->set("kwargs", make_mapping(std::move(entries)));
  }
}

}  // namespace winnow::jinja
