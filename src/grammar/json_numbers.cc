#include "grammar/json_numbers.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"

namespace winnow::grammar {
namespace {

constexpr std::size_t kMostDigits = 400;

ExpressionPtr digits(int least, int most) {
  return repeat(characters({{'0', '9'}}), least, most);
}

ExpressionPtr any_fraction() {
  return optional(sequence({bytes("."), digits(1, -1)}));
}

// All numbers from 0 up; intersected with the bounds.
Regular::Ptr magnitudes(bool integer) {
  const ExpressionPtr whole =
      choice({bytes("0"), sequence({characters({{'1', '9'}}), digits(0, -1)})});
  return Regular::of(integer ? *whole : *sequence({whole, any_fraction()}));
}

// A digit below `digit`; not 0 if it is the leading digit.
ExpressionPtr smaller_digit(char digit, bool leading) {
  const std::uint32_t low = leading ? '1' : '0';
  const auto high = static_cast<std::uint32_t>(digit) - 1;
  return high < low ? choice({}) : characters({{low, high}});
}

// Fractions, with their points, up to `bound`.
ExpressionPtr fractions_up_to(const std::string& bound, bool exclusive) {
  std::vector<ExpressionPtr> parts;
  if (!exclusive || !bound.empty()) {
    parts.push_back(nothing());
  }
  for (std::size_t i = 0; i < bound.size(); ++i) {
    const std::string same = fmt::format(".{}", bound.substr(0, i));
    parts.push_back(sequence({bytes(same), smaller_digit(bound[i], false), digits(0, -1)}));
    if (i > 0) {
      parts.push_back(bytes(same));  // the bound has further digits
    }
  }
  if (!exclusive) {
    parts.push_back(bound.empty()
                        ? sequence({bytes("."), repeat(bytes("0"), 1, -1)})
                        : sequence({bytes(fmt::format(".{}", bound)), repeat(bytes("0"), 0, -1)}));
  }
  return choice(std::move(parts));
}

Regular::Ptr magnitudes_up_to(const Decimal& bound, bool exclusive) {
  const int length = static_cast<int>(bound.whole.size());
  std::vector<ExpressionPtr> parts;
  if (length > 1) {
    parts.push_back(
        sequence({choice({bytes("0"), sequence({characters({{'1', '9'}}), digits(0, length - 2)})}),
                  any_fraction()}));
  }
  for (int i = 0; i < length; ++i) {
    const auto place = static_cast<std::size_t>(i);
    parts.push_back(sequence({bytes(bound.whole.substr(0, place)),
                              smaller_digit(bound.whole[place], /*leading=*/i == 0 && length > 1),
                              digits(length - i - 1, length - i - 1), any_fraction()}));
  }
  parts.push_back(sequence({bytes(bound.whole), fractions_up_to(bound.fraction, exclusive)}));
  return Regular::of(*choice(std::move(parts)));
}

Regular::Ptr none() {
  return Regular::of(*choice({}));
}

Regular::Ptr both(const Regular::Ptr& a, const Regular::Ptr& b) {
  return Regular::intersection(*a, *b);
}

// The magnitudes of all numbers with one sign that satisfy a bound.
Regular::Ptr keep(const NumberBounds::Bound& bound, bool is_lowest, bool negative,
                  const Regular::Ptr& all) {
  const bool upwards = is_lowest != negative;  // the magnitude is at least the bound's
  if (bound.value.negative != negative && !bound.value.is_zero()) {
    return upwards ? all : none();
  }
  if (upwards) {
    return Regular::difference(*all, *magnitudes_up_to(bound.value, !bound.exclusive));
  }
  return both(all, magnitudes_up_to(bound.value, bound.exclusive));
}

// Tracks the remainder modulo the divisor while reading digits, with as many digits after the point
// as the divisor has.
Regular::Ptr multiples(const Decimal& divisor) {
  constexpr int kMostDivisor = 10'000;
  const int places = static_cast<int>(divisor.fraction.size());
  const std::string text = (divisor.whole == "0" ? "" : divisor.whole) + divisor.fraction;
  int value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  require(value > 0 && text.size() < 9 && value * (places + 1) <= kMostDivisor,
          "multipleOf is more than {} in units of its last digit", kMostDivisor);
  const auto state = [&](int place, int remainder) { return 1 + place * value + remainder; };
  const auto accepts = [&](int place, int remainder) {
    for (int i = place; i < places; ++i) {
      remainder = remainder * 10 % value;
    }
    return remainder == 0;
  };
  // States: the first one, before any digit; then, for each number of digits after the point, one
  // per remainder; last the states right after the point, one per remainder.
  const int points = 1 + (places + 1) * value;
  std::vector<Regular::State> states(static_cast<std::size_t>(points + value));
  const auto read = [&](int from, int place, int remainder) {
    for (int digit = 0; digit < 10; ++digit) {
      const auto c = static_cast<std::uint32_t>('0' + digit);
      states[static_cast<std::size_t>(from)].transitions.push_back(
          {c, c, state(place, (remainder * 10 + digit) % value)});
    }
  };
  read(0, 0, 0);
  for (int remainder = 0; remainder < value; ++remainder) {
    for (int place = 0; place <= places; ++place) {
      Regular::State& here = states[static_cast<std::size_t>(state(place, remainder))];
      here.accepts = accepts(place, remainder);
      if (place == 0 && places > 0) {
        here.transitions.push_back({'.', '.', points + remainder});
      }
      if (place == 0 || place < places) {
        read(state(place, remainder), place == 0 ? 0 : place + 1, remainder);
      }
    }
    if (places > 0) {
      read(points + remainder, 1, remainder);
    }
  }
  return std::make_shared<const Regular>(std::move(states));
}

Regular::Ptr of_sign(const NumberBounds& bounds, bool negative) {
  const Regular::Ptr all = magnitudes(bounds.integer);
  Regular::Ptr kept = all;
  for (const auto& bound : bounds.lowest) {
    kept = both(kept, keep(bound, /*is_lowest=*/true, negative, all));
  }
  for (const auto& bound : bounds.highest) {
    kept = both(kept, keep(bound, /*is_lowest=*/false, negative, all));
  }
  for (const Decimal& divisor : bounds.multiples_of) {
    kept = both(kept, multiples(divisor));
  }
  return kept;
}

// Numbers of both signs: "-" and a magnitude, or a magnitude.
Regular::Ptr signed_numbers(const Regular& positive, const Regular& negative) {
  std::vector<Regular::State> states;
  const auto append = [&states](const Regular& part) {
    const int offset = static_cast<int>(states.size());
    for (Regular::State state : part.states()) {
      for (auto& transition : state.transitions) {
        transition.to += offset;
      }
      states.push_back(std::move(state));
    }
    return offset;
  };
  append(positive);  // no transition leads to its first state
  const int begin = append(negative);
  if (!negative.is_empty()) {
    auto& first = states[0].transitions;
    first.insert(first.begin(), {'-', '-', begin});
  }
  return std::make_shared<const Regular>(std::move(states));
}

}  // namespace

Decimal decimal_of(const nlohmann::ordered_json& number) {
  std::string text = number.dump();
  Decimal decimal;
  if (text.starts_with('-')) {
    decimal.negative = true;
    text.erase(0, 1);
  }
  int exponent = 0;
  if (const auto e = text.find_first_of("eE"); e != std::string::npos) {
    const std::size_t begin = e + 1 + (text[e + 1] == '+' ? 1 : 0);
    std::from_chars(text.data() + begin, text.data() + text.size(), exponent);
    text.resize(e);
  }
  const auto point = text.find('.');
  std::string all = text.substr(0, point);
  int whole = static_cast<int>(all.size()) + exponent;
  all += point == std::string::npos ? "" : text.substr(point + 1);
  require(std::abs(exponent) < static_cast<int>(kMostDigits), "{} has too many digits",
          number.dump());
  if (whole < 0) {
    all.insert(0, static_cast<std::size_t>(-whole), '0');
    whole = 0;
  }
  all.resize(std::max(all.size(), static_cast<std::size_t>(whole)), '0');
  decimal.whole = all.substr(0, static_cast<std::size_t>(whole));
  decimal.whole.erase(0, decimal.whole.find_first_not_of('0'));
  if (decimal.whole.empty()) {
    decimal.whole.assign(1, '0');
  }
  decimal.fraction = all.substr(static_cast<std::size_t>(whole));
  decimal.fraction.erase(decimal.fraction.find_last_not_of('0') + 1);
  return decimal;
}

Regular::Ptr numbers_within(const NumberBounds& bounds) {
  return signed_numbers(*of_sign(bounds, false), *of_sign(bounds, true));
}

}  // namespace winnow::grammar
