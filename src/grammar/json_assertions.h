// What a JSON Schema asserts, with everything that holds at the same time put together.
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

/// Kinds of values, as bits.
enum JsonType : std::uint8_t {
  kNull = 1,
  kBoolean = 2,
  kInteger = 4,
  kNumber = 8,  // integers among them
  kString = 16,
  kArray = 32,
  kObject = 64,
};
inline constexpr std::uint8_t kAllTypes = 127;

/// The keywords of one schema about members of objects.
struct ObjectPart {
  std::vector<std::pair<std::string, Schema>> properties;
  std::vector<std::pair<std::string, Schema>> patterns;
  std::optional<Schema> additional;
  bool is_list = false;  // it says which members there are, if only that there are none
};

/// A schema with its $ref and allOf resolved.
struct Assertions {
  std::uint8_t types = kAllTypes;
  bool has_types = false;                     // they were said, not taken from other keywords
  std::optional<std::vector<Schema>> values;  // enum, const
  int min_length = 0;
  int max_length = -1;
  std::vector<std::string> patterns;        // found anywhere in a string
  std::vector<std::string> whole_patterns;  // of formats: they match all of it
  NumberBounds numbers;
  std::vector<std::vector<Schema>> prefixes;  // prefixItems
  std::vector<std::optional<Schema>> items;   // by prefix: for what follows it
  int min_items = 0;
  int max_items = -1;
  std::vector<ObjectPart> objects;
  bool closed = false;  // unevaluatedProperties: no members but those that are named
  std::set<std::string> required;
  std::vector<Schema> names;  // propertyNames
  int min_properties = 0;
  int max_properties = -1;
  std::vector<std::vector<Schema>> any_of;
  std::vector<std::vector<Schema>> one_of;
  bool is_false = false;  // nothing is valid
};

/// Reads schemas of one document.
class SchemaReader {
 public:
  /// `root` must outlive this.
  explicit SchemaReader(const Schema& root) : root_(root) {}

  /// Adds what `schema` asserts. `where`: its place, for messages. `outermost`: it is part of no
  /// other schema about the same value. Throws Error that names a keyword that is malformed or
  /// cannot be held to.
  void add(const Schema& schema, const std::string& where, Assertions& all,
           bool outermost = false) const;
  /// The schema that a $ref refers to.
  [[nodiscard]] const Schema& resolve(const std::string& reference, const std::string& where) const;
  /// The $ref of a schema that asserts nothing beside it.
  [[nodiscard]] static std::optional<std::string> lone_reference(const Schema& schema);

 private:
  void add_types(const Schema& schema, const std::string& where, Assertions& all) const;
  static void add_strings(const Schema& schema, const std::string& where, Assertions& all);
  static void add_numbers(const Schema& schema, const std::string& where, Assertions& all);
  static void add_arrays(const Schema& schema, const std::string& where, Assertions& all);
  static void add_objects(const Schema& schema, const std::string& where, Assertions& all);
  void add_combined(const Schema& schema, const std::string& where, Assertions& all) const;

  const Schema& root_;
  mutable int depth_ = 0;  // of $ref and allOf within each other
};

}  // namespace winnow::grammar
