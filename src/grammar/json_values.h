// The parts of JSON that the grammars of schemas contain.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "grammar/expression.h"
#include "grammar/json_schema.h"
#include "grammar/regular.h"

namespace winnow::grammar {

/// A JSON string, with quotes, whose characters are a text of the language.
ExpressionPtr json_string_of(Regular::Ptr language);
/// Rules for values of all types; each is made on its first use.
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
  /// A string of `least` to `most` characters, plain or escaped; -1: any number.
  ExpressionPtr string_of_length(int least, int most);
  /// The only notation of a value that a model may generate: nlohmann::json's.
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
  ExpressionPtr character_ = make_character();  // shared by all strings, and so are its masks
  std::map<std::pair<int, int>, int> bounded_;  // strings by least and most characters
};

}  // namespace winnow::grammar
