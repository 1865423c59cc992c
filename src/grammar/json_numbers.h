// Numbers within bounds, as regular languages over their digits.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "grammar/regular.h"

namespace winnow::grammar {

/// A number as decimal digits: exactly as in the schema.
struct Decimal {
  bool negative = false;
  std::string whole = "0";  // without leading zeros
  std::string fraction;     // without trailing zeros

  [[nodiscard]] bool is_zero() const { return whole == "0" && fraction.empty(); }
};

/// The digits of a JSON number. Throws Error if there are more than 400.
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

/// Numbers without exponents that satisfy all bounds. Throws Error if multipleOf is not above zero,
/// or its automaton would be too large.
Regular::Ptr numbers_within(const NumberBounds& bounds);

}  // namespace winnow::grammar
