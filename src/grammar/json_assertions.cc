#include "grammar/json_assertions.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "grammar/json_formats.h"

namespace winnow::grammar {
namespace {

constexpr int kMostReferences = 64;
constexpr int kMostCount = 100'000;

// Keywords with assertions that these grammars cannot enforce.
constexpr std::array<std::string_view, 15> kRefused{"not",
                                                    "if",
                                                    "then",
                                                    "else",
                                                    "dependentSchemas",
                                                    "dependencies",
                                                    "contains",
                                                    "minContains",
                                                    "maxContains",
                                                    "dependentRequired",
                                                    "$dynamicRef",
                                                    "$recursiveRef",
                                                    "unevaluatedItems",
                                                    "uniqueItems",
                                                    "extends"};

bool asks_for_nothing(std::string_view keyword, const Schema& value) {
  return (keyword == "uniqueItems" && value == false) ||
         (keyword == "unevaluatedItems" && value == true) || (keyword == "not" && value == false) ||
         ((keyword == "dependentSchemas" || keyword == "dependentRequired" ||
           keyword == "dependencies") &&
          value.is_object() && value.empty());
}

void refuse_keywords(const Schema& schema, const std::string& where) {
  for (const std::string_view keyword : kRefused) {
    const auto found = schema.find(std::string(keyword));
    require(found == schema.end() || asks_for_nothing(keyword, *found), "{}: {} is not supported",
            where, keyword);
  }
}

int count_of(const Schema& schema, const char* keyword, const std::string& where, int otherwise) {
  const auto found = schema.find(keyword);
  if (found == schema.end()) {
    return otherwise;
  }
  require(found->is_number() && found->get<double>() >= 0.0 && found->get<double>() <= kMostCount &&
              found->get<double>() == static_cast<int>(found->get<double>()),
          "{}: {} is {}; expected an integer from 0 to {}", where, keyword, found->dump(),
          kMostCount);
  return found->get<int>();
}

int smaller(int a, int b) {  // -1: any number
  return a < 0 ? b : b < 0 ? a : std::min(a, b);
}

const Schema* array_of(const Schema& schema, const char* keyword, const std::string& where) {
  const auto found = schema.find(keyword);
  if (found == schema.end()) {
    return nullptr;
  }
  require(found->is_array() && !found->empty(), "{}: {} is empty or not an array", where, keyword);
  return &*found;
}

std::uint8_t type_of_name(const std::string& name, const std::string& where) {
  static constexpr std::array<std::pair<std::string_view, std::uint8_t>, 7> kNames{
      {{"null", kNull},
       {"boolean", kBoolean},
       {"integer", kInteger},
       {"number", kNumber | kInteger},
       {"string", kString},
       {"array", kArray},
       {"object", kObject}}};
  for (const auto& [known, type] : kNames) {
    if (name == known) {
      return type;
    }
  }
  fail("{}: type {} is not known", where, name);
}

// The type that keywords for one type imply, if a schema has such keywords and no type.
std::uint8_t implied_types(const Schema& schema) {
  const auto has = [&](std::initializer_list<const char*> keywords) {
    return std::ranges::any_of(keywords, [&](const char* k) { return schema.contains(k); });
  };
  std::uint8_t types = 0;
  if (has({"properties", "required", "additionalProperties", "patternProperties", "propertyNames",
           "minProperties", "maxProperties", "unevaluatedProperties"})) {
    types |= kObject;
  }
  if (has({"items", "prefixItems", "minItems", "maxItems"})) {
    types |= kArray;
  }
  if (has({"pattern", "minLength", "maxLength", "format"})) {
    types |= kString;
  }
  if (has({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})) {
    types |= kNumber | kInteger;
  }
  return types == 0 ? kAllTypes : types;
}

}  // namespace

std::optional<std::string> SchemaReader::lone_reference(const Schema& schema) {
  static constexpr std::array<std::string_view, 9> kHarmless{
      "$ref",     "title",      "description", "default",  "examples",
      "$comment", "deprecated", "readOnly",    "writeOnly"};
  if (!schema.is_object() || !schema.contains("$ref") || !schema["$ref"].is_string()) {
    return std::nullopt;
  }
  for (const auto& [keyword, _] : schema.items()) {
    if (std::ranges::find(kHarmless, keyword) == kHarmless.end()) {
      return std::nullopt;
    }
  }
  return schema["$ref"].get<std::string>();
}

const Schema& SchemaReader::resolve(const std::string& reference, const std::string& where) const {
  require(reference.starts_with('#'), "{}: $ref {} refers to another document", where, reference);
  try {
    const auto pointer = reference.substr(1);
    std::string decoded;
    for (std::size_t i = 0; i < pointer.size(); ++i) {
      if (pointer[i] == '%' && i + 2 < pointer.size()) {
        decoded += static_cast<char>(std::stoi(pointer.substr(i + 1, 2), nullptr, 16));
        i += 2;
      } else {
        decoded += pointer[i];
      }
    }
    require(decoded.empty() || decoded.starts_with('/'), "{}: $ref {}: anchors are not supported",
            where, reference);
    return root_.at(Schema::json_pointer(decoded));
  } catch (const nlohmann::json::exception&) {
    fail("{}: $ref {} refers to nothing", where, reference);
  } catch (const std::logic_error&) {
    fail("{}: $ref {} is malformed", where, reference);
  }
}

void SchemaReader::add(const Schema& schema, const std::string& where, Assertions& all,
                       bool outermost) const {
  if (schema.is_boolean()) {
    all.is_false = all.is_false || schema == false;
    return;
  }
  require(schema.is_object(), "{}: a schema is an object, true or false", where);
  require(++depth_ <= kMostReferences, "{}: schemas refer to each other without end", where);
  refuse_keywords(schema, where);
  // Only the outermost schema knows which members are evaluated elsewhere.
  require(outermost || schema.value("unevaluatedProperties", Schema(true)) == true,
          "{}: unevaluatedProperties is not supported within $ref, allOf, anyOf and oneOf", where);
  add_types(schema, where, all);
  add_strings(schema, where, all);
  add_numbers(schema, where, all);
  add_arrays(schema, where, all);
  add_objects(schema, where, all);
  add_combined(schema, where, all);
  --depth_;
}

void SchemaReader::add_types(const Schema& schema, const std::string& where,
                             Assertions& all) const {
  if (const auto type = schema.find("type"); type != schema.end()) {
    std::uint8_t types = 0;
    for (const Schema& name : type->is_array() ? *type : Schema::array({*type})) {
      require(name.is_string(), "{}: type is not a name, or names", where);
      types |= type_of_name(name.get<std::string>(), where);
    }
    all.types &= types;
    all.has_types = true;
  } else if (!schema.contains("enum") && !schema.contains("const")) {
    all.types &= implied_types(schema);
  }
  const auto keep = [&](const std::vector<Schema>& values) {
    if (!all.values) {
      all.values = values;
    } else {
      std::erase_if(*all.values, [&](const Schema& value) {
        return std::ranges::find(values, value) == values.end();
      });
    }
  };
  if (const Schema* values = array_of(schema, "enum", where)) {
    keep(values->get<std::vector<Schema>>());
  }
  if (const auto value = schema.find("const"); value != schema.end()) {
    keep({*value});
  }
}

void SchemaReader::add_strings(const Schema& schema, const std::string& where, Assertions& all) {
  all.min_length = std::max(all.min_length, count_of(schema, "minLength", where, 0));
  all.max_length = smaller(all.max_length, count_of(schema, "maxLength", where, -1));
  if (const auto pattern = schema.find("pattern"); pattern != schema.end()) {
    require(pattern->is_string(), "{}: pattern is not a string", where);
    all.patterns.push_back(pattern->get<std::string>());
  }
  if (const auto format = schema.find("format"); format != schema.end()) {
    require(format->is_string(), "{}: format is not a string", where);
    const auto name = format->get<std::string>();
    const auto int_format = name == "int32" || name == "int64";
    const auto pattern = format_pattern(name);
    require(pattern || int_format, "{}: format {} is not supported", where, name);
    if (int_format && (all.types & kInteger) != 0) {  // OpenAPI
      all.numbers.lowest.push_back(
          {decimal_of(name == "int32" ? Schema(INT32_MIN) : Schema(INT64_MIN)), false});
      all.numbers.highest.push_back(
          {decimal_of(name == "int32" ? Schema(INT32_MAX) : Schema(INT64_MAX)), false});
    } else if (pattern && !pattern->empty()) {
      all.whole_patterns.emplace_back(*pattern);
    }
  }
}

void SchemaReader::add_numbers(const Schema& schema, const std::string& where, Assertions& all) {
  const auto number = [&](const char* keyword) -> const Schema* {
    const auto found = schema.find(keyword);
    if (found == schema.end()) {
      return nullptr;
    }
    require(found->is_number(), "{}: {} is not a number", where, keyword);
    return &*found;
  };
  // In draft 4, exclusiveMinimum is a boolean that modifies minimum.
  const auto is_flag = [&](const char* keyword) {
    const auto found = schema.find(keyword);
    return found != schema.end() && found->is_boolean();
  };
  const bool draft_4_low = is_flag("exclusiveMinimum");
  const bool draft_4_high = is_flag("exclusiveMaximum");
  if (const Schema* value = number("minimum")) {
    all.numbers.lowest.push_back(
        {decimal_of(*value), draft_4_low && schema["exclusiveMinimum"] == true});
  }
  if (const Schema* value = number("maximum")) {
    all.numbers.highest.push_back(
        {decimal_of(*value), draft_4_high && schema["exclusiveMaximum"] == true});
  }
  if (const Schema* value = draft_4_low ? nullptr : number("exclusiveMinimum")) {
    all.numbers.lowest.push_back({decimal_of(*value), true});
  }
  if (const Schema* value = draft_4_high ? nullptr : number("exclusiveMaximum")) {
    all.numbers.highest.push_back({decimal_of(*value), true});
  }
  if (const Schema* value = number("multipleOf")) {
    require(value->get<double>() > 0.0, "{}: multipleOf {} is not above 0", where, value->dump());
    all.numbers.multiples_of.push_back(decimal_of(*value));
  }
}

void SchemaReader::add_arrays(const Schema& schema, const std::string& where, Assertions& all) {
  all.min_items = std::max(all.min_items, count_of(schema, "minItems", where, 0));
  all.max_items = smaller(all.max_items, count_of(schema, "maxItems", where, -1));
  // Before draft 2020-12, an array of items was the prefix, and additionalItems the rest.
  const bool old = schema.contains("items") && schema["items"].is_array();
  const char* const prefix_name = old ? "items" : "prefixItems";
  const char* const items_name = old ? "additionalItems" : "items";
  const Schema* prefix =
      old && schema["items"].empty() ? nullptr : array_of(schema, prefix_name, where);
  const auto items = schema.find(items_name);
  if (prefix != nullptr || items != schema.end()) {
    all.prefixes.push_back(prefix == nullptr ? std::vector<Schema>()
                                             : prefix->get<std::vector<Schema>>());
    all.items.push_back(items == schema.end() ? std::nullopt : std::optional(*items));
  }
}

void SchemaReader::add_objects(const Schema& schema, const std::string& where, Assertions& all) {
  all.min_properties = std::max(all.min_properties, count_of(schema, "minProperties", where, 0));
  all.max_properties = smaller(all.max_properties, count_of(schema, "maxProperties", where, -1));
  ObjectPart part;
  const auto members = [&](const char* keyword, auto& list) {
    if (const auto found = schema.find(keyword); found != schema.end()) {
      require(found->is_object(), "{}: {} is not an object", where, keyword);
      for (const auto& [name, value] : found->items()) {
        list.emplace_back(name, value);
      }
      return true;
    }
    return false;
  };
  bool any = members("properties", part.properties);
  any = members("patternProperties", part.patterns) || any;
  if (const auto found = schema.find("additionalProperties"); found != schema.end()) {
    part.additional = *found;
    any = true;
  }
  if (const auto found = schema.find("unevaluatedProperties"); found != schema.end()) {
    const bool closed_anyway = *found == false && !schema.contains("additionalProperties");
    require(closed_anyway || *found == true, "{}: unevaluatedProperties is not supported", where);
    all.closed = all.closed || *found == false;
  }
  if (any) {
    part.is_list = schema.contains("properties") || schema.contains("patternProperties");
    all.objects.push_back(std::move(part));
  }
  if (const auto found = schema.find("required"); found != schema.end()) {
    require(found->is_array(), "{}: required is not an array of names", where);
    for (const Schema& name : *found) {
      require(name.is_string(), "{}: required is not an array of names", where);
      all.required.insert(name.get<std::string>());
    }
  }
  if (const auto found = schema.find("propertyNames"); found != schema.end()) {
    all.names.push_back(*found);
  }
}

void SchemaReader::add_combined(const Schema& schema, const std::string& where,
                                Assertions& all) const {
  if (const auto found = schema.find("$ref"); found != schema.end()) {
    require(found->is_string(), "{}: $ref is not a string", where);
    const auto reference = found->get<std::string>();
    add(resolve(reference, where), reference, all);
  }
  if (const Schema* parts = array_of(schema, "allOf", where)) {
    for (std::size_t i = 0; i < parts->size(); ++i) {
      add((*parts)[i], fmt::format("{}/allOf/{}", where, i), all);
    }
  }
  if (const Schema* parts = array_of(schema, "anyOf", where)) {
    all.any_of.push_back(parts->get<std::vector<Schema>>());
  }
  if (const Schema* parts = array_of(schema, "oneOf", where)) {
    all.one_of.push_back(parts->get<std::vector<Schema>>());
  }
}

}  // namespace winnow::grammar
