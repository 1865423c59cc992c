// Numbers within bounds, as languages over their digits.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "grammar/regular.h"

namespace winnow::grammar {

/// A number as its digits: exact, as the schema has it.
struct Decimal {
  bool negative = false;
  std::string whole = "0";  // without leading zeros
  std::string fraction;     // without zeros at its end

  [[nodiscard]] bool is_zero() const { return whole == "0" && fraction.empty(); }
};

/// A JSON number's; Error when it has more than 400 digits.
Decimal decimal_of(const nlohmann::ordered_json& number);

struct NumberBounds {
  struct Bound {
    Decimal value;
    bool exclusive = false;
  };
  std::vector<Bound> lowest = {};
  std::vector<Bound> highest = {};
  std::vector<Decimal> multiples_of = {};
  bool integer = false;

  [[nodiscard]] bool any() const {
    return !lowest.empty() || !highest.empty() || !multiples_of.empty();
  }
};

/// Numbers without exponents that keep all bounds. Throws Error for a multiple that is no number
/// above zero, or whose automaton would be too large.
Regular::Ptr numbers_within(const NumberBounds& bounds);

}  // namespace winnow::grammar
