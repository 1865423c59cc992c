// The values of templates: Python's, as far as chat templates need them.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace winnow::jinja {

class Value;
class Runtime;
struct Sequence;
struct Mapping;
struct Namespace;
struct Callable;
struct Loop;

/// A name or element that does not exist. It prints as nothing; most other uses are an error, whose
/// text it contains.
struct Undefined {
  std::shared_ptr<const std::string> why;
};
struct None {};

/// Immutable except for Namespace; copies share their contents.
class Value {
 public:
  using Text = std::shared_ptr<const std::string>;

  Value() = default;  // undefined
  Value(None none) : data_(none) {}
  template <std::same_as<bool> B>
  Value(B b) : data_(b) {}
  template <std::integral I>
  requires(!std::same_as<I, bool>) Value(I i) : data_(static_cast<std::int64_t>(i)) {}
  Value(double d) : data_(d) {}
  Value(std::string text) : data_(std::make_shared<const std::string>(std::move(text))) {}
  Value(std::string_view text) : Value(std::string(text)) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(std::shared_ptr<const Sequence> sequence) : data_(std::move(sequence)) {}
  Value(std::shared_ptr<const Mapping> mapping) : data_(std::move(mapping)) {}
  Value(std::shared_ptr<Namespace> space) : data_(std::move(space)) {}
  Value(std::shared_ptr<const Callable> callable) : data_(std::move(callable)) {}
  Value(std::shared_ptr<const Loop> loop) : data_(std::move(loop)) {}

  static Value undefined(std::string why);

  // The contents if the value has that type, else nullptr.
  [[nodiscard]] const Undefined* undefined() const { return std::get_if<Undefined>(&data_); }
  [[nodiscard]] const bool* boolean() const { return std::get_if<bool>(&data_); }
  [[nodiscard]] const std::int64_t* integer() const { return std::get_if<std::int64_t>(&data_); }
  [[nodiscard]] const double* real() const { return std::get_if<double>(&data_); }
  [[nodiscard]] const std::string* text() const { return shared<const std::string>(); }
  [[nodiscard]] const Sequence* sequence() const { return shared<const Sequence>(); }
  [[nodiscard]] const Mapping* mapping() const { return shared<const Mapping>(); }
  [[nodiscard]] Namespace* space() const { return shared<Namespace>(); }
  [[nodiscard]] const Callable* callable() const { return shared<const Callable>(); }
  [[nodiscard]] const Loop* loop() const { return shared<const Loop>(); }

  [[nodiscard]] bool is_undefined() const { return undefined() != nullptr; }
  [[nodiscard]] bool is_none() const { return std::holds_alternative<None>(data_); }
  /// bool, int or float.
  [[nodiscard]] bool is_number() const {
    return boolean() != nullptr || integer() != nullptr || real() != nullptr;
  }

 private:
  template <class T>
  [[nodiscard]] T* shared() const {
    const auto* pointer = std::get_if<std::shared_ptr<T>>(&data_);
    return pointer == nullptr ? nullptr : pointer->get();
  }

  std::variant<Undefined, None, bool, std::int64_t, double, Text, std::shared_ptr<const Sequence>,
               std::shared_ptr<const Mapping>, std::shared_ptr<Namespace>,
               std::shared_ptr<const Callable>, std::shared_ptr<const Loop>>
      data_;
};

/// The size of a value's tree. Both numbers are limited when a container is made, so that walking
/// it cannot exhaust the stack or, with shared parts, take exponential time.
struct Extent {
  int depth = 0;
  std::uint64_t weight = 1;
  bool has_space = false;   // a namespace
  bool has_object = false;  // a function or a loop, which may refer to anything
};

struct Sequence {
  // Views and lazy sequences (Python's generators) iterate; only lists and tuples can be indexed.
  enum class Kind : std::uint8_t { list, tuple, lazy, keys, values, items };

  Kind kind = Kind::list;
  bool is_group = false;  // of groupby: a tuple with attributes grouper and list
  std::vector<Value> items;
  Extent extent;

  [[nodiscard]] bool indexable() const { return kind == Kind::list || kind == Kind::tuple; }
};

/// A dict: entries in the order of insertion.
struct Mapping {
  using Entries = std::vector<std::pair<Value, Value>>;
  Entries entries;
  Extent extent;

  /// nullptr when there is none.
  [[nodiscard]] const Value* find(const Value& key) const;
  [[nodiscard]] const Value* find(std::string_view key) const;
};

/// namespace(): the only mutable value.
struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;

  [[nodiscard]] const Value* find(std::string_view name) const;
  /// Error when `value` contains a namespace, which could create a cycle.
  void set(std::string_view name, Value value);
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

/// A function, a bound method, or an object with attributes only.
struct Callable {
  std::string name;
  std::function<Value(Runtime&, const Arguments&)> function;        // may be empty
  std::function<Value(std::string_view attribute)> attribute = {};  // may be empty
};

/// The state of a running for loop.
struct LoopRun {
  Sequence items{};
  int depth = 1;                                             // of recursion
  std::optional<Value> changed{};                            // the latest arguments of loop.changed
  std::function<std::string(const Value& items)> recurse{};  // empty: the loop is not recursive
};

/// The `loop` variable of a for, at one iteration.
struct Loop {
  std::shared_ptr<LoopRun> run;
  std::size_t index = 0;
};

Value make_sequence(std::vector<Value> items, Sequence::Kind kind = Sequence::Kind::list);
/// A later entry replaces the value of an earlier one with an equal key. Keys must be hashable.
Value make_mapping(Mapping::Entries entries);
Value make_callable(std::string name, std::function<Value(Runtime&, const Arguments&)> function);
Value from_json(const nlohmann::ordered_json& json);

Extent extent_of(const Value& value);
bool truthy(const Value& value);
/// Python's ==.
bool equals(const Value& a, const Value& b);
/// Python's <; Error for types without an order.
bool less(const Value& a, const Value& b);
/// "int", "str", ...: Python's name of the value's type.
std::string_view type_name(const Value& value);

/// Error when `key` cannot be the key of a dict: lists and dicts cannot.
void require_hashable(const Value& key);

/// Error when `value` is undefined.
const Value& require_defined(const Value& value);

}  // namespace winnow::jinja
