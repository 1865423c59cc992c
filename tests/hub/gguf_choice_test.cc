#include "hub/gguf_choice.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "checkpoint/gguf/split_name.h"

namespace winnow::hub {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<std::string> kFiles{"README.md",
                                      "Q8_0/m-Q8_0-00001-of-00002.gguf",
                                      "Q8_0/m-Q8_0-00002-of-00002.gguf",
                                      "m-Q4_K_M.gguf",
                                      "m-UD-Q4_K_M.gguf",
                                      "m.q5_k_m.gguf",
                                      "mmproj-m-F16.gguf",
                                      "imatrix.gguf"};

std::vector<std::string> choose(const std::string& wanted,
                                const std::vector<std::string>& files = kFiles) {
  return choose_gguf(files, wanted, "org/m");
}

std::string error(const std::string& wanted, const std::vector<std::string>& files = kFiles) {
  try {
    (void)choose(wanted, files);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(GgufChoice, ByType) {
  EXPECT_THAT(choose("Q4_K_M"), ElementsAre("m-Q4_K_M.gguf"));
  EXPECT_THAT(choose("q4_k_m"), ElementsAre("m-Q4_K_M.gguf"));
  EXPECT_THAT(choose("UD-Q4_K_M"), ElementsAre("m-UD-Q4_K_M.gguf"));
  EXPECT_THAT(choose("Q5_K_M"), ElementsAre("m.q5_k_m.gguf"));
  EXPECT_THAT(choose("Q8_0"),
              ElementsAre("Q8_0/m-Q8_0-00001-of-00002.gguf", "Q8_0/m-Q8_0-00002-of-00002.gguf"));
}

TEST(GgufChoice, ByFile) {
  EXPECT_THAT(choose("m-UD-Q4_K_M.gguf"), ElementsAre("m-UD-Q4_K_M.gguf"));
  EXPECT_EQ(choose("Q8_0/m-Q8_0-00001-of-00002.gguf").size(), 2U);
}

TEST(GgufChoice, TheOnlyOneOrTheStandardType) {
  EXPECT_THAT(choose(""), ElementsAre("m-Q4_K_M.gguf"));
  EXPECT_THAT(choose("", {"a.gguf", "mmproj.gguf"}), ElementsAre("a.gguf"));
  EXPECT_EQ(error("", {"a-Q8_0.gguf", "a-Q6_K.gguf"}),
            "org/m: Q4_K_M names none of its GGUF files, expected one: a-Q8_0.gguf, a-Q6_K.gguf");
}

TEST(GgufChoice, WhatIsNotClearIsNamed) {
  EXPECT_THAT(error("F16"), HasSubstr("F16 names none of its GGUF files, expected one: Q8_0/m"));
  EXPECT_THAT(error("Q4_0", {"a-Q4_0.gguf", "b-Q4_0.gguf"}),
              HasSubstr("Q4_0 names several of its GGUF files, expected one: a-Q4_0.gguf, b-"));
  EXPECT_THAT(error("Q8_0", {"m-Q8_0-00001-of-00002.gguf"}),
              HasSubstr("m-Q8_0-00002-of-00002.gguf is not there"));
  EXPECT_EQ(error("", {"README.md"}), "org/m: there are no GGUF files");
}

TEST(GgufSplitName, Numbers) {
  const auto split = gguf::parse_split_name("a/m-00002-of-00010.gguf");
  ASSERT_TRUE(split);
  EXPECT_EQ(split->stem, "a/m");
  EXPECT_EQ(split->number, 2);
  EXPECT_EQ(split->count, 10);
  EXPECT_EQ(split->file(1), "a/m-00001-of-00010.gguf");
  for (const char* name :
       {"m.gguf", "m-00011-of-00010.gguf", "m-00000-of-00010.gguf", ".gguf", "m-0001-of-00010.gguf",
        "m-0000x-of-00010.gguf", "00001-of-00010.gguf"}) {
    EXPECT_FALSE(gguf::parse_split_name(name)) << name;
  }
}

}  // namespace
}  // namespace winnow::hub
