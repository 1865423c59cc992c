// The parts of JSON that schemas are made of.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "grammar/expression.h"
#include "grammar/json_schema.h"
#include "grammar/regular.h"

namespace winnow::grammar {

/// A string, quotes included, whose characters are a text of the language.
ExpressionPtr json_string_of(Regular::Ptr language);
/// Rules for values of all kinds, which are made when they are first asked for.
class JsonRules {
 public:
  JsonRules(RuleSet& rules, JsonSpaces spaces) : rules_(rules), spaces_(spaces) {}

  ExpressionPtr any_value();
  ExpressionPtr any_object();
  ExpressionPtr any_array();
  ExpressionPtr any_string();
  ExpressionPtr any_number();
  ExpressionPtr any_integer();
  ExpressionPtr boolean();
  ExpressionPtr null();
  /// A string of `least` to `most` characters, in any spelling; -1: any number.
  ExpressionPtr string_of_length(int least, int most);
  /// The one spelling of a value that a model may use: as nlohmann::json writes it.
  [[nodiscard]] ExpressionPtr literal(const nlohmann::ordered_json& value) const;
  /// The separators of objects and arrays.
  [[nodiscard]] ExpressionPtr comma() const { return separator(","); }
  [[nodiscard]] ExpressionPtr colon() const { return separator(":"); }

 private:
  ExpressionPtr once(int& rule, const char* name, ExpressionPtr (JsonRules::*make)());
  ExpressionPtr make_value();
  ExpressionPtr make_object();
  ExpressionPtr make_array();
  ExpressionPtr make_string();
  static ExpressionPtr make_character();
  [[nodiscard]] ExpressionPtr separator(const char* mark) const;

  RuleSet& rules_;
  JsonSpaces spaces_;
  int value_ = -1;
  int object_ = -1;
  int array_ = -1;
  int string_ = -1;
  ExpressionPtr character_ = make_character();  // of all strings, so that these share masks
  std::map<std::pair<int, int>, int> bounded_;  // strings of so many characters
};

}  // namespace winnow::grammar
