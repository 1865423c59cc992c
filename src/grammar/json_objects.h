// Objects of a JSON Schema.
#pragma once

#include <string>

#include "grammar/expression.h"
#include "grammar/json_assertions.h"
#include "grammar/json_values.h"
#include "grammar/regular.h"

namespace winnow::grammar {

/// What makes rules of the schemas within a schema.
class MemberCompiler {
 public:
  virtual ~MemberCompiler() = default;
  /// Values that are valid under `schema`.
  virtual ExpressionPtr member(const Schema& schema, const std::string& where) = 0;
  virtual JsonRules& json() = 0;
  virtual RuleSet& rules() = 0;
  [[nodiscard]] virtual const SchemaReader& reader() const = 0;
};

/// Objects that keep all assertions. Throws Error that names what cannot be held to.
ExpressionPtr object_of(const Assertions& all, const std::string& where, MemberCompiler& compiler);

/// The strings that keep all patterns and lengths.
Regular::Ptr string_language(const Assertions& all, const std::string& where);

}  // namespace winnow::grammar
