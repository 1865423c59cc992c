#include "grammar/json_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "grammar/json_numbers.h"
#include "grammar_testing.h"

namespace winnow::grammar {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

struct SchemaCase {
  const char* schema;
  std::vector<const char*> valid;
  std::vector<const char*> invalid;
};

void check(const SchemaCase& test) {
  const Grammar grammar = compile(json_schema_rules(Json::parse(test.schema)));
  for (const char* text : test.valid) {
    EXPECT_TRUE(testing::accepts(grammar, text)) << test.schema << " should take " << text;
  }
  for (const char* text : test.invalid) {
    EXPECT_FALSE(testing::accepts(grammar, text)) << test.schema << " should refuse " << text;
  }
}

TEST(JsonSchema, TypesOfValues) {
  check(
      {"{}", {"null", "1", "\"\"", "[]", "{}", "[1, {\"a\": [true]}]"}, {"", "nul", "[1,]", " 1"}});
  check({"true", {"1"}, {}});
  check({R"({"type": "integer"})", {"0", "-7", "12"}, {"1.5", "01", "1e3", "\"1\""}});
  check({R"({"type": "number"})", {"0", "-7.25", "1e-3", "2E+9"}, {"1.", ".5", "+1", "00"}});
  check({R"({"type": ["string", "null"]})", {"null", "\"a\""}, {"1"}});
  // Only an annotation: draft 2020-12 has no "nullable", so a validator would reject null.
  check({R"({"type": "string", "nullable": true})", {"\"a\""}, {"null", "1"}});
  check({R"({"type": "boolean"})", {"true", "false"}, {"True", "0"}});
  check({R"({"type": "string"})",
         {R"("")", R"("é 世 😀")", R"("\n\"\\\/\u00e9")", R"("\ud83d\ude00")"},
         {"\"\n\"", R"("\x")", R"("\ud83d")", R"("\ude00\ud83d")", "\"\xC3\"", R"("a)"}});
}

TEST(JsonSchema, Objects) {
  const char* const kPerson = R"({"type": "object", "properties": {"name": {"type": "string"},
      "age": {"type": "integer"}, "x": {}}, "required": ["name", "x"]})";
  check({kPerson,
         {R"({"name":"a","x":1})", R"({"name": "a", "age": 5, "x": []})"},
         {"{}", R"({"name":"a"})", R"({"x":1,"name":"a"})", R"({"name":"a","x":1,"y":2})",
          R"({"name":"a","x":1,})", R"({ "name":"a","x":1})"}});
  check({R"({"type": "object"})", {"{}", R"({"a": 1, "b": {}})"}, {"[]", "{"}});
  check({R"({"type": "object", "properties": {}})", {"{}"}, {R"({"a":1})"}});
  check({R"({"properties": {"a": {"const": 1}}, "additionalProperties": {"type": "null"}})",
         {"{}", R"({"a":1})", R"({"a":1,"b":null})", R"({"b":null,"aa":null})"},
         {R"({"a":2})", R"({"b":1})", R"({"b":null,"a":null})"}});
  check({R"({"properties": {"a": {}}, "additionalProperties": false})", {"{}"}, {R"({"b":1})"}});
  check({R"({"patternProperties": {"^i_": {"type": "integer"}, "^s_": {"type": "string"}},
             "additionalProperties": false})",
         {"{}", R"({"i_a":1,"s_b":"x","i_":2})"},
         {R"({"i_a":"x"})", R"({"x":1})"}});
  check({R"({"type": "object", "propertyNames": {"pattern": "^[a-c]+$", "maxLength": 2}})",
         {"{}", R"({"ab":1})"},
         {R"({"abc":1})", R"({"d":1})"}});
  check({R"({"properties": {"a": {}, "b": {}, "c": {}}, "minProperties": 1, "maxProperties": 2})",
         {R"({"a":1})", R"({"b":1,"c":2})"},
         {"{}", R"({"a":1,"b":2,"c":3})"}});
  check({R"({"type": "object", "maxProperties": 1})", {"{}", R"({"q":1})"}, {R"({"q":1,"r":2})"}});
  check({R"({"properties": {"a": false, "b": {}}})", {"{}", R"({"b":1})"}, {R"({"a":1})"}});
  check({R"({"required": ["a\"b"]})", {R"({"a\"b":1})", R"({"a\"b":1})"}, {"{}"}});
}

TEST(JsonSchema, Arrays) {
  check({R"({"type": "array"})", {"[]", "[1,2]", "[1, \"a\"]"}, {"[1 ,2]", "[,]"}});
  check({R"({"items": {"type": "integer"}, "minItems": 2, "maxItems": 3})",
         {"[1,2]", "[1, 2, 3]"},
         {"[]", "[1]", "[1,2,3,4]", "[1,\"a\"]"}});
  check({R"({"prefixItems": [{"type": "string"}, {"type": "integer"}], "items": {"type": "null"}})",
         {"[]", "[\"a\"]", "[\"a\",1]", "[\"a\",1,null,null]"},
         {"[1]", "[\"a\",1,2]"}});
  check({R"({"prefixItems": [{"type": "string"}, {"type": "integer"}], "items": false,
             "minItems": 2})",
         {"[\"a\",1]"},
         {"[]", "[\"a\"]", "[\"a\",1,2]"}});
  check({R"({"items": [{"const": 1}], "additionalItems": {"const": 2}})",
         {"[]", "[1]", "[1,2,2]"},
         {"[2]", "[1,1]"}});
  check({R"({"type": "array", "maxItems": 0})", {"[]"}, {"[1]"}});
  check({R"({"prefixItems": [{"const": 1}, {"const": 2}], "maxItems": 1})",
         {"[]", "[1]"},
         {"[1,2]"}});
  check({R"({"type": "array", "minItems": 1})", {"[1]", "[[]]"}, {"[]"}});
}

TEST(JsonSchema, Strings) {
  check({R"({"type": "string", "minLength": 1, "maxLength": 2})",
         {"\"a\"", "\"é世\"", R"("\n\u00e9")", R"("\ud83d\ude00a")"},
         {"\"\"", "\"abc\""}});
  check({R"({"pattern": "^[A-Z]{2}\\d+$"})", {"\"AB1\""}, {"\"A1\"", "\"AB\"", "\"xAB1\""}});
  check({R"({"pattern": "b"})", {"\"b\"", "\"abc\"", R"("\"b")"}, {"\"a\""}});
  check({R"({"pattern": "^[a\"\\n]*$", "maxLength": 3})", {R"("a\"\n")"}, {R"("\"\"\"\"")"}});
  check({R"({"allOf": [{"pattern": "^a"}, {"pattern": "z$"}], "type": "string"})",
         {"\"az\"", "\"a-z\""},
         {"\"a\"", "\"za\""}});
  check({R"({"format": "date"})", {"\"2024-02-28\""}, {"\"2024-02-30\"", "\"24-1-1\""}});
  check({R"({"format": "date-time"})", {"\"2024-12-31T23:59:59.5+01:00\""}, {"\"2024-12-31\""}});
  check({R"({"format": "uuid"})", {"\"123e4567-e89b-12d3-a456-426614174000\""}, {"\"123e\""}});
  check({R"({"format": "email"})", {"\"a.b@c.example\""}, {"\"a.b\"", "\"a@b\""}});
  check({R"({"format": "ipv4"})", {"\"192.168.0.255\""}, {"\"1.2.3\"", "\"1.2.3.256\""}});
  check({R"({"format": "ipv6"})", {"\"::1\"", "\"a:b:c:d:e:f:1:2\""}, {"\"1.2\"", "\":\""}});
  check({R"({"format": "uri"})", {"\"https://a.example:80/x?y#z\""}, {"\"a b\"", "\"x\""}});
  check({R"({"type": "string", "format": "password"})", {"\"x\""}, {"1"}});
}

TEST(JsonSchema, NumbersWithinBounds) {
  check({R"({"type": "integer", "minimum": -12, "maximum": 105})",
         {"-12", "-1", "0", "99", "105"},
         {"-13", "106", "1000", "-100"}});
  check({R"({"type": "integer", "exclusiveMinimum": 0})", {"1", "12"}, {"0", "-1", "-0"}});
  check({R"({"type": "number", "minimum": 0.25, "exclusiveMaximum": 10.5})",
         {"0.25", "0.250", "1", "10.4999", "10"},
         {"0.2", "0.2499", "10.5", "10.50", "11", "-1"}});
  check({R"({"minimum": 5, "exclusiveMinimum": true})", {"5.1", "6"}, {"5", "5.0"}});
  check({R"({"type": "integer", "multipleOf": 7, "maximum": 100})",
         {"0", "7", "-14", "98"},
         {"8", "105"}});
  check({R"({"type": "number", "multipleOf": 0.25})",
         {"1", "0.5", "2.75", "-0.25"},
         {"0.3", "0.125"}});
}

TEST(JsonSchema, BoundsAreKeptExactly) {
  const char* const kNumbers[] = {"0",   "0.0", "1",    "-1",   "9",    "10",   "11",    "99",
                                  "100", "0.1", "0.05", "-0.1", "1.50", "-9.9", "12.34", "-12.34"};
  for (const char* bound : kNumbers) {
    for (const bool exclusive : {false, true}) {
      for (const bool lowest : {false, true}) {
        NumberBounds bounds;
        (lowest ? bounds.lowest : bounds.highest)
            .push_back({decimal_of(Json::parse(bound)), exclusive});
        const auto language = numbers_within(bounds);
        for (const char* number : kNumbers) {
          const double x = std::stod(number);
          const double b = std::stod(bound);
          const bool keeps = exclusive ? (lowest ? x > b : x < b) : (lowest ? x >= b : x <= b);
          EXPECT_EQ(language->accepts(number), keeps)
              << number << (lowest ? " >" : " <") << (exclusive ? " " : "= ") << bound;
        }
      }
    }
  }
}

TEST(JsonSchema, EnumsAndConstants) {
  check({R"({"enum": ["a", 1, null, [1, 2], {"x": "é"}]})",
         {"\"a\"", "1", "null", "[1, 2]", R"({"x":"é"})"},
         {"\"b\"", "[1]"}});
  check({R"({"const": "a\nb"})", {R"("a\nb")"}, {"\"a\""}});
  check({R"({"enum": ["a", "bb", 3], "type": "string", "maxLength": 1})",
         {"\"a\""},
         {"\"bb\"", "3"}});
  check({R"({"enum": [1, 5, 9], "minimum": 4})", {"5", "9"}, {"1"}});
}

TEST(JsonSchema, SchemasWithinSchemas) {
  check({R"({"anyOf": [{"type": "integer"}, {"type": "string"}]})", {"1", "\"a\""}, {"null"}});
  check({R"({"type": "object", "properties": {"k": {}, "a": {}, "b": {}},
             "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})",
         {R"({"a":1})", R"({"b":1})", R"({"k":0,"a":1,"b":2})"},
         {"{}", R"({"k":0})"}});
  check({R"({"allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]},
             {"properties": {"a": {"minimum": 3}, "b": {}}}]})",
         {R"({"a":3})", R"({"a":4,"b":1})"},
         {R"({"a":2})", "{}", R"({"b":1})"}});
  check({R"({"allOf": [{"properties": {"a": {}}, "additionalProperties": false},
             {"properties": {"b": {}}}]})",
         {"{}", R"({"a":1})"},
         {R"({"b":1})"}});
  check({R"({"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": {
             "value": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/n"},
             {"type": "null"}]}}, "required": ["value", "next"]}}})",
         {R"({"value":1,"next":null})", R"({"value":1,"next":{"value":2,"next":null}})"},
         {R"({"value":1})", R"({"value":1,"next":{"value":2}})"}});
  check({R"({"type": "array", "items": {"$ref": "#"}})", {"[]", "[[],[[]]]"}, {"[1]"}});
  check({R"({"$ref": "#/definitions/a%25b~1c", "definitions": {"a%b/c": {"const": 1}}})",
         {"1"},
         {"2"}});
  check({R"({"$defs": {"s": {"type": "string"}}, "$ref": "#/$defs/s", "maxLength": 1})",
         {"\"a\""},
         {"\"ab\"", "1"}});
}

TEST(JsonSchema, UnevaluatedPropertiesCloseAnObject) {
  check({R"({"allOf": [{"properties": {"a": {}}}], "properties": {"b": {}},
             "unevaluatedProperties": false})",
         {"{}", R"({"b":1,"a":2})"},
         {R"({"c":1})"}});
  check({R"({"type": "object", "unevaluatedProperties": false})", {"{}"}, {R"({"c":1})"}});
}

TEST(JsonSchema, SchemasThatComeBackToThemselvesByAnyWay) {
  check({R"({"$ref": "#/$defs/n", "$defs": {"n": {"properties": {"next": {"allOf":
             [{"$ref": "#/$defs/n"}], "description": "the next"}}, "additionalProperties": false}}})",
         {"{}", R"({"next":{"next":{}}})"},
         {R"({"next":1})"}});
}

TEST(JsonSchema, OneOfWhoseSchemasAreApart) {
  check({R"({"oneOf": [{"type": "integer"}, {"type": "string"}]})", {"1", "\"a\""}, {"null"}});
  check({R"({"oneOf": [{"properties": {"t": {"const": "a"}, "x": {}}, "required": ["t"]},
                       {"properties": {"t": {"const": "b"}, "y": {}}, "required": ["t"]}]})",
         {R"({"t":"a","x":1})", R"({"t":"b"})"},
         {R"({"t":"a","y":1})", "{}"}});
  check({R"({"oneOf": [{"type": "integer", "maximum": 3}, {"type": "integer", "minimum": 5}]})",
         {"3", "5"},
         {"4"}});
  check({R"({"oneOf": [{"const": 1}, {"enum": [2, 3]}]})", {"1", "3"}, {"4"}});
}

TEST(JsonSchema, NoSpacesWhereNoneAreWanted) {
  const char* schema = R"({"type": "object", "properties": {"a": {"const": [1, {"b": 2}]},
      "c": {"type": "array", "items": {"type": "integer"}}, "d": {}}, "additionalProperties": true,
      "required": ["a"]})";
  const Grammar grammar = compile(json_schema_rules(Json::parse(schema), JsonSpaces::none));
  const Grammar any = compile(json_object_rules(JsonSpaces::none));
  EXPECT_TRUE(testing::accepts(grammar, R"({"a":[1,{"b":2}],"c":[1,2],"d":{"x y":[1]},"e f":""})"));
  for (const char* text : {R"({"a": [1,{"b":2}]})", R"({"a":[1, {"b":2}]})",
                           R"({"a":[1,{"b": 2}]})", R"({"a":[1,{"b":2}], "d":1})",
                           R"({"a":[1,{"b":2}],"c":[1, 2]})", R"({"a":[1,{"b":2}],"d":[1, 2]})",
                           R"({"a":[1,{"b":2}],"d":{"e": 1}})", R"({"a":[1,{"b":2}],"e": 1})"}) {
    EXPECT_FALSE(testing::accepts(grammar, text)) << text;
    EXPECT_FALSE(testing::accepts(any, text)) << text;
    EXPECT_TRUE(testing::accepts(compile(json_schema_rules(Json::parse(schema))), text)) << text;
  }
}

std::string schema_error(const char* schema) {
  try {
    compile(json_schema_rules(Json::parse(schema)));
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(JsonSchema, WhatCannotBeHeldToIsNamed) {
  EXPECT_THAT(schema_error(R"({"not": {"type": "string"}})"), HasSubstr("#: not is not supported"));
  EXPECT_THAT(schema_error(R"({"properties": {"a": {"uniqueItems": true, "type": "array"}}})"),
              HasSubstr("#/properties/a: uniqueItems"));
  EXPECT_THAT(schema_error(R"({"oneOf": [{"minimum": 1}, {"maximum": 5}]})"),
              HasSubstr("#/oneOf: schemas 0 and 1 may both accept"));
  EXPECT_THAT(schema_error(R"({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]})"),
              HasSubstr("may both accept"));
  EXPECT_THAT(schema_error(R"({"format": "semver"})"), HasSubstr("format semver is not supported"));
  EXPECT_THAT(schema_error("{\"pattern\": \"(?=a)\"}"), HasSubstr("lookahead"));
  EXPECT_THAT(schema_error(R"({"$ref": "#/nope"})"), HasSubstr("refers to nothing"));
  EXPECT_THAT(schema_error(R"({"$ref": "other.json#/x"})"), HasSubstr("another document"));
  EXPECT_THAT(schema_error(R"({"type": "strng"})"), HasSubstr("type strng is not known"));
  EXPECT_THAT(schema_error(R"({"minLength": -1})"), HasSubstr("minLength is -1"));
  EXPECT_THAT(schema_error(R"({"type": "array", "minItems": 3, "maxItems": 2})"),
              HasSubstr("minItems is more than maxItems"));
  EXPECT_THAT(schema_error(R"({"allOf": [{"$ref": "#"}]})"), HasSubstr("without end"));
  EXPECT_THAT(schema_error(R"({"type": "object", "minProperties": 2})"),
              HasSubstr("minProperties"));
  EXPECT_THAT(
      schema_error(R"({"allOf": [{"properties": {"a": {}}, "unevaluatedProperties": false}]})"),
      HasSubstr("#/allOf/0: unevaluatedProperties"));
  EXPECT_THAT(schema_error(R"({"type": "number", "multipleOf": 123456.789})"),
              HasSubstr("#: multipleOf is more than"));
  EXPECT_THAT(schema_error("false"), HasSubstr("no text fits"));
  EXPECT_THAT(schema_error(R"({"properties": {"a": {"$ref": "#"}}, "required": ["a"]})"),
              HasSubstr("no text fits"));
  EXPECT_THAT(schema_error(R"({"enum": ["a"], "type": "integer"})"), HasSubstr("no text fits"));
  EXPECT_EQ(schema_error(R"({"uniqueItems": false, "title": "x", "x-anything": 5})"), "no error");
}

}  // namespace
}  // namespace winnow::grammar
