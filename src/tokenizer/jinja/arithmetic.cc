#include <cmath>
#include <limits>

#include "tokenizer/jinja/format.h"
#include "tokenizer/jinja/operators.h"

namespace winnow::jinja {
namespace {

constexpr std::string_view symbol(Operator op) {
  switch (op) {
    case Operator::add:
      return "+";
    case Operator::subtract:
      return "-";
    case Operator::multiply:
      return "*";
    case Operator::divide:
      return "/";
    case Operator::floor_divide:
      return "//";
    case Operator::modulo:
      return "%";
    default:
      return "**";
  }
}

bool is_whole(const Value& value) {
  return value.boolean() != nullptr || value.integer() != nullptr;
}

std::int64_t whole(const Value& value) {
  return value.boolean() != nullptr ? static_cast<std::int64_t>(*value.boolean())
                                    : *value.integer();
}

double real(const Value& value) {
  return value.real() != nullptr ? *value.real() : static_cast<double>(whole(value));
}

[[noreturn]] void too_large() {
  fail("an integer is too large");
}

double floor_modulo(double a, double b) {
  const double rest = std::fmod(a, b);
  if (rest == 0.0) {
    return std::copysign(0.0, b);
  }
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

double floor_quotient(double a, double b) {
  const double quotient = (a - floor_modulo(a, b)) / b;
  if (quotient == 0.0) {
    return std::copysign(0.0, a / b);
  }
  const double down = std::floor(quotient);  // quotient is near a whole number already
  return quotient - down > 0.5 ? down + 1.0 : down;
}

std::int64_t whole_power(std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) {
      too_large();
    }
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) {
      too_large();
    }
  }
  return result;
}

Value divide_whole(Operator op, std::int64_t a, std::int64_t b) {
  require(b != 0, "division by zero");
  if (op == Operator::divide) {
    return static_cast<double>(a) / static_cast<double>(b);
  }
  if (b == -1) {  // the one quotient that can overflow
    if (a == std::numeric_limits<std::int64_t>::min() && op == Operator::floor_divide) {
      too_large();
    }
    return op == Operator::floor_divide ? -a : 0;
  }
  const std::int64_t rest = a % b;
  const bool down = rest != 0 && (rest < 0) != (b < 0);
  return op == Operator::floor_divide ? a / b - static_cast<std::int64_t>(down)
                                      : rest + (down ? b : 0);
}

Value of_whole(Operator op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case Operator::add:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case Operator::subtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case Operator::multiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case Operator::power:
      if (b < 0) {
        require(a != 0, "zero cannot be raised to a negative power");
        return std::pow(static_cast<double>(a), static_cast<double>(b));
      }
      return whole_power(a, b);
    default:
      return divide_whole(op, a, b);
  }
  if (overflow) {
    too_large();
  }
  return result;
}

Value of_reals(Operator op, double a, double b) {
  switch (op) {
    case Operator::add:
      return a + b;
    case Operator::subtract:
      return a - b;
    case Operator::multiply:
      return a * b;
    case Operator::power: {
      require(a != 0.0 || b >= 0.0, "zero cannot be raised to a negative power");
      require(a >= 0.0 || b == std::floor(b), "{} to the power of {} is no real number", a, b);
      const double result = std::pow(a, b);
      require(!std::isinf(result) || std::isinf(a) || std::isinf(b), "a float is too large");
      return result;
    }
    default:
      break;
  }
  require(b != 0.0, "division by zero");
  return op == Operator::divide   ? a / b
         : op == Operator::modulo ? floor_modulo(a, b)
                                  : floor_quotient(a, b);
}

std::string repeat_text(Runtime& runtime, const std::string& text, std::size_t times) {
  require(text.empty() || times <= Runtime::kMaxText / text.size(),
          "a string is longer than {} bytes", Runtime::kMaxText);
  runtime.spend_text(text.size() * times);
  std::string out;
  out.reserve(text.size() * times);
  for (std::size_t i = 0; i < times && !text.empty(); ++i) {
    out += text;
  }
  return out;
}

Value repeat(Runtime& runtime, const Value& value, std::int64_t times) {
  const auto count = static_cast<std::size_t>(std::max<std::int64_t>(times, 0));
  if (const std::string* text = value.text()) {
    return repeat_text(runtime, *text, count);
  }
  const Sequence& sequence = *value.sequence();
  const std::size_t size = sequence.items.size();
  require(size == 0 || count <= Runtime::kUnits / size, "a list is too long");
  runtime.spend_items(size * count);
  std::vector<Value> items;
  items.reserve(size * count);
  for (std::size_t i = 0; i < count && size > 0; ++i) {
    items.insert(items.end(), sequence.items.begin(), sequence.items.end());
  }
  return make_sequence(std::move(items), sequence.kind);
}

bool is_repeatable(const Value& value) {
  return value.text() != nullptr || (value.sequence() != nullptr && value.sequence()->indexable());
}

Value join_lists(Runtime& runtime, const Sequence& a, const Sequence& b) {
  runtime.spend_items(a.items.size() + b.items.size());
  std::vector<Value> items = a.items;
  items.insert(items.end(), b.items.begin(), b.items.end());
  return make_sequence(std::move(items), a.kind);
}

[[noreturn]] void no_such(Operator op, const Value& left, const Value& right) {
  if (op == Operator::add && left.text() != nullptr) {
    fail("only a str can be added to a str, not a {}; ~ joins any values", type_name(right));
  }
  fail("{} does not work between a {} and a {}", symbol(op), type_name(left), type_name(right));
}

}  // namespace

Value arithmetic(Runtime& runtime, Operator op, const Value& left, const Value& right) {
  require_defined(left);
  if (op == Operator::modulo && left.text() != nullptr) {
    return format_percent(runtime, *left.text(),
                          right);  // %s prints undefined as nothing
  }
  require_defined(right);
  if (left.is_number() && right.is_number()) {
    return is_whole(left) && is_whole(right) ? of_whole(op, whole(left), whole(right))
                                             : of_reals(op, real(left), real(right));
  }
  if (op == Operator::add && left.text() != nullptr && right.text() != nullptr) {
    runtime.spend_text(left.text()->size() + right.text()->size());
    return *left.text() + *right.text();
  }
  const Sequence* a = left.sequence();
  const Sequence* b = right.sequence();
  if (op == Operator::add && a != nullptr && b != nullptr && a->kind == b->kind && a->indexable()) {
    return join_lists(runtime, *a, *b);
  }
  if (op == Operator::multiply && is_repeatable(left) && is_whole(right)) {
    return repeat(runtime, left, whole(right));
  }
  if (op == Operator::multiply && is_whole(left) && is_repeatable(right)) {
    return repeat(runtime, right, whole(left));
  }
  no_such(op, left, right);
}

Value signed_value(bool negative, const Value& operand) {
  require_defined(operand);
  require(operand.is_number(), "a {} has no sign", type_name(operand));
  if (const double* number = operand.real()) {
    return negative ? -*number : *number;
  }
  return of_whole(negative ? Operator::subtract : Operator::add, 0, whole(operand));
}

}  // namespace winnow::jinja
