// Compiles objects of a JSON Schema.
#pragma once

#include <string>

#include "grammar/expression.h"
#include "grammar/json_assertions.h"
#include "grammar/json_values.h"
#include "grammar/regular.h"

namespace winnow::grammar {

/// Compiles the schemas within a schema to rules.
class MemberCompiler {
 public:
  virtual ~MemberCompiler() = default;
  /// Matches values that are valid under `schema`.
  virtual ExpressionPtr member(const Schema& schema, const std::string& where) = 0;
  virtual JsonRules& json() = 0;
  virtual RuleSet& rules() = 0;
  [[nodiscard]] virtual const SchemaReader& reader() const = 0;
};

/// Objects that satisfy all assertions. Throws Error with the name of one that is not supported.
ExpressionPtr object_of(const Assertions& all, const std::string& where, MemberCompiler& compiler);

/// The strings that satisfy all patterns and lengths.
Regular::Ptr string_language(const Assertions& all, const std::string& where);

}  // namespace winnow::grammar
