// The global functions of templates.
#include <array>
#include <ctime>
#include <limits>
#include <memory>
#include <utility>

#include "tokenizer/jinja/arguments.h"
#include "tokenizer/jinja/builtins.h"
#include "tokenizer/jinja/operators.h"
#include "tokenizer/jinja/print.h"
#include "tokenizer/utf8.h"

namespace winnow::jinja {
namespace {

using Function = Value (*)(Runtime&, const Arguments&);

Value range(Runtime& runtime, const Arguments& arguments) {
  constexpr std::int64_t kMost = 100'000;  // the limit of Jinja's sandbox
  const Bound bound("range", arguments, {"start", "stop", "step"});
  require(bound.has(0), "range: expected at least 1 argument");
  const std::int64_t start = bound.has(1) ? bound.integer(0, 0) : 0;
  const std::int64_t stop = bound.has(1) ? bound.integer(1, 0) : bound.integer(0, 0);
  const std::int64_t step = bound.integer(2, 1);
  require(step != 0, "range: the step is zero");
  std::vector<Value> items;
  for (std::int64_t i = start; step > 0 ? i < stop : i > stop;) {
    require(static_cast<std::int64_t>(items.size()) < kMost, "range: more than {} numbers", kMost);
    runtime.spend_items(1);
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) {
      break;
    }
  }
  return make_sequence(std::move(items));
}

/// The entries for dict() and namespace(): from a dict or pairs, and named arguments.
Mapping::Entries entries_of(Runtime& runtime, const Arguments& arguments) {
  require(arguments.positional.size() <= 1, "expected at most 1 positional argument");
  Mapping::Entries entries;
  if (!arguments.positional.empty()) {
    const Value& from = arguments.positional.front();
    if (const Mapping* mapping = from.mapping()) {
      entries = mapping->entries;
    } else {
      for (const Value& pair : iterate(runtime, from)) {
        const std::vector<Value> both = iterate(runtime, pair);
        require(both.size() == 2, "a dict is made of pairs");
        entries.emplace_back(both[0], both[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) {
    entries.emplace_back(name, value);
  }
  runtime.spend(entries.size() * entries.size() / 8);
  return entries;
}

Value dict(Runtime& runtime, const Arguments& arguments) {
  return make_mapping(entries_of(runtime, arguments));
}

Value make_namespace(Runtime& runtime, const Arguments& arguments) {
  auto space = std::make_shared<Namespace>();
  for (const auto& [name, value] : entries_of(runtime, arguments)) {
    require(name.text() != nullptr, "the attributes of a namespace have names");
    space->set(*name.text(), value);
  }
  return space;
}

Value raise_exception(Runtime& runtime, const Arguments& arguments) {
  const Bound bound("raise_exception", arguments, {"message"});
  throw Error(to_text(runtime, bound.value(0)));
}

Value strftime_now(Runtime& runtime, const Arguments& arguments) {
  const Bound bound("strftime_now", arguments, {"format"});
  const std::string format(bound.required_text(0));
  if (format.empty()) {
    return "";
  }
  require(format.size() <= 256, "strftime_now: the format is too long");
  const std::time_t now = runtime.now();
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 4096> buffer;
  const std::size_t size = std::strftime(buffer.data(), buffer.size(), format.c_str(), &local);
  return to_valid_utf8({buffer.data(), size});
}

/// Returns nothing on the first call, then its separator.
Value joiner(Runtime& /*runtime*/, const Arguments& arguments) {
  const Bound bound("joiner", arguments, {"sep"});
  const Value separator = bound.value(0, ", ");
  return make_callable(
      "joiner", [separator, used = std::make_shared<bool>(false)](Runtime&, const Arguments& none) {
        const Bound bound("joiner", none, {});
        return std::exchange(*used, true) ? separator : Value("");
      });
}

/// next() returns its items cyclically; current is the next one.
Value cycler(Runtime& /*runtime*/, const Arguments& arguments) {
  require(!arguments.positional.empty(), "cycler: at least one item has to be provided");
  require(arguments.named.empty(), "cycler: the argument '{}' is not supported",
          arguments.named.empty() ? "" : arguments.named.front().first);
  const auto at = std::make_shared<std::size_t>(0);
  const auto step = [items = arguments.positional, at](bool moves) {
    const Value item = items[*at];
    *at = moves ? (*at + 1) % items.size() : *at;
    return item;
  };
  const auto attribute = [step, at](std::string_view name) -> Value {
    if (name == "current") {
      return step(false);
    }
    if (name == "next") {
      return make_callable("next", [step](Runtime&, const Arguments&) { return step(true); });
    }
    if (name == "reset") {
      return make_callable("reset", [at](Runtime&, const Arguments&) {
        *at = 0;
        return None{};
      });
    }
    return Value::undefined(fmt::format("a cycler has no attribute '{}'", name));
  };
  return std::make_shared<const Callable>(Callable{"cycler", {}, attribute});
}

struct NamedFunction {
  std::string_view name;
  Function function;
};

constexpr NamedFunction kFunctions[] = {
    {"range", range},
    {"dict", dict},
    {"namespace", make_namespace},
    {"joiner", joiner},
    {"cycler", cycler},
    {"raise_exception", raise_exception},
    {"strftime_now", strftime_now},
};

}  // namespace

Value find_function(std::string_view name) {
  for (const NamedFunction& entry : kFunctions) {
    if (entry.name == name) {
      return make_callable(std::string(name), entry.function);
    }
  }
  return {};
}

}  // namespace winnow::jinja
