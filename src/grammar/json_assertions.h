// Collects the assertions of a JSON Schema that apply to the same value.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "grammar/json_numbers.h"

namespace winnow::grammar {

using Schema = nlohmann::ordered_json;

/// Types of values, as bits.
enum JsonType : std::uint8_t {
  kNull = 1,
  kBoolean = 2,
  kInteger = 4,
  kNumber = 8,  // includes integers
  kString = 16,
  kArray = 32,
  kObject = 64,
};
inline constexpr std::uint8_t kAllTypes = 127;

/// One schema's keywords for members of objects.
struct ObjectPart {
  std::vector<std::pair<std::string, Schema>> properties;
  std::vector<std::pair<std::string, Schema>> patterns;
  std::optional<Schema> additional;
  bool is_list = false;  // it lists members, maybe none
};

/// A schema after its $ref and allOf are resolved.
struct Assertions {
  std::uint8_t types = kAllTypes;
  bool has_types = false;                     // given by "type", not by other keywords
  std::optional<std::vector<Schema>> values;  // enum, const
  int min_length = 0;
  int max_length = -1;
  std::vector<std::string> patterns;        // must match somewhere in the string
  std::vector<std::string> whole_patterns;  // of formats: must match the whole string
  NumberBounds numbers;
  std::vector<std::vector<Schema>> prefixes;  // prefixItems
  std::vector<std::optional<Schema>> items;   // by prefix: the schema of the items after it
  int min_items = 0;
  int max_items = -1;
  std::vector<ObjectPart> objects;
  bool closed = false;  // unevaluatedProperties: only listed members are allowed
  std::set<std::string> required;
  std::vector<Schema> names;  // propertyNames
  int min_properties = 0;
  int max_properties = -1;
  std::vector<std::vector<Schema>> any_of;
  std::vector<std::vector<Schema>> one_of;
  bool is_false = false;  // no value is valid
};

/// Reads the schemas of one document.
class SchemaReader {
 public:
  /// `root` must outlive this.
  explicit SchemaReader(const Schema& root) : root_(root) {}

  /// Adds the assertions of `schema`. `where`: its place, for messages. `outermost`: no other
  /// schema about the same value contains it. Throws Error with the name of a keyword that is
  /// malformed or not supported.
  void add(const Schema& schema, const std::string& where, Assertions& all,
           bool outermost = false) const;
  /// The schema that a $ref refers to.
  [[nodiscard]] const Schema& resolve(const std::string& reference, const std::string& where) const;
  /// The $ref of a schema that has no other assertions.
  [[nodiscard]] static std::optional<std::string> lone_reference(const Schema& schema);

 private:
  void add_types(const Schema& schema, const std::string& where, Assertions& all) const;
  static void add_strings(const Schema& schema, const std::string& where, Assertions& all);
  static void add_numbers(const Schema& schema, const std::string& where, Assertions& all);
  static void add_arrays(const Schema& schema, const std::string& where, Assertions& all);
  static void add_objects(const Schema& schema, const std::string& where, Assertions& all);
  void add_combined(const Schema& schema, const std::string& where, Assertions& all) const;

  const Schema& root_;
  mutable int depth_ = 0;  // nesting depth of $ref and allOf
};

}  // namespace winnow::grammar
