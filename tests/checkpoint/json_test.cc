#include "checkpoint/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "base/error.h"

namespace winnow {
namespace {

using ::testing::HasSubstr;

std::string json_error(const std::string& text) {
  try {
    (void)parse_json(text, "it");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string nested(std::size_t levels) {
  return std::string(levels, '[') + std::string(levels, ']');
}

TEST(Json, ErrorsSayWhat) {
  EXPECT_THAT(json_error("{"), HasSubstr("it: not valid JSON: "));
  EXPECT_THAT(json_error("\"\xFF\""), HasSubstr("it: not valid JSON: "));
  EXPECT_EQ(json_error(R"({"a": [{"b": 1, "b": 2}]})"),
            "it: key \"b\" appears twice in one object");
  EXPECT_EQ(json_error(R"([{"b": 1}, {"b": {"b": 2}}])"), "no error");
  EXPECT_EQ(json_error(nested(64)), "no error");
  EXPECT_EQ(json_error(nested(65)), "it: JSON is nested deeper than 64 levels");
  EXPECT_EQ(json_error(nested(100000)), "it: JSON is nested deeper than 64 levels");
}

TEST(Json, PythonsConstantsBecomeStrings) {
  EXPECT_EQ(parse_json(R"({"a": [NaN, -Infinity, Infinity, 1], "b": "a \" NaN"})", "it"),
            nlohmann::json({{"a", {"NaN", "-Infinity", "Infinity", 1}}, {"b", "a \" NaN"}}));
  EXPECT_EQ(parse_json("NaN", "it"), "NaN");
  EXPECT_THAT(json_error("{NaN: 1, 2}"), HasSubstr("it: not valid JSON: "));
  EXPECT_THAT(json_error("[NaNs]"), HasSubstr("it: not valid JSON: "));
  EXPECT_EQ(with_quoted_constants(R"({"NaN": "Infinity"})"), std::nullopt);
}

// A client may send such text: the time must not grow with the square of the number of objects.
TEST(Json, ManySmallObjectsTakeNoLongerThanTheirBytes) {
  std::string text = "[";
  for (int i = 0; i < 300000; ++i) {
    text += "{},";
  }
  text += "{}]";
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(parse_json(text, "it").size(), 300001U);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

}  // namespace
}  // namespace winnow
