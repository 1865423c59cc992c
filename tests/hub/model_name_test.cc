#include "hub/model_name.h"

#include <gtest/gtest.h>

namespace winnow::hub {
namespace {

TEST(ModelName, Names) {
  EXPECT_EQ(parse_model_name("Qwen/Qwen3-0.6B"), (ModelName{"Qwen/Qwen3-0.6B", "main", ""}));
  EXPECT_EQ(parse_model_name("a/b_c@v1.0"), (ModelName{"a/b_c", "v1.0", ""}));
  EXPECT_EQ(parse_model_name("a/b@refs/pr/7"), (ModelName{"a/b", "refs/pr/7", ""}));
  EXPECT_EQ(parse_model_name("a/b:Q4_K_M"), (ModelName{"a/b", "main", "Q4_K_M"}));
  EXPECT_EQ(parse_model_name("a/b@v1:sub/x-00001-of-00002.gguf"),
            (ModelName{"a/b", "v1", "sub/x-00001-of-00002.gguf"}));
}

TEST(ModelName, AddressesOfTheHub) {
  for (const char* before :
       {"hf.co/", "huggingface.co/", "https://huggingface.co/", "https://hf.co/"}) {
    const std::string address(before);
    EXPECT_EQ(parse_model_name(address + "a/b"), (ModelName{"a/b", "main", ""})) << before;
    EXPECT_EQ(parse_model_name(address + "a/b:Q4_K_M"), (ModelName{"a/b", "main", "Q4_K_M"}));
    EXPECT_EQ(parse_model_name(address + "b"), std::nullopt) << before;
  }
  EXPECT_EQ(parse_model_name("https://example.org/a/b"), std::nullopt);
}

TEST(ModelName, PathsAreNone) {
  for (const char* text : {"",       "model",       "./model", "../model", "/models/model",
                           "a/b/c",  "a/b/",        "~/model", "a/.b",     "a/b--c",
                           "a/b..c", "-a/b",        "a/b c",   "a/b.gguf", "a/b.safetensors",
                           "a/b@",   "a/b@../../c", "a/b@/c",  "a/b@c//d", "a/b@.c",
                           "dense",  "a/b:",        "a/b:/x",  "a/b:..",   "a/b.gguf:x"}) {
    EXPECT_EQ(parse_model_name(text), std::nullopt) << text;
  }
}

TEST(ModelName, OfASnapshot) {
  EXPECT_EQ(repository_of_snapshot("/cache/models--org--a-name/snapshots/c0ffee"), "org/a-name");
  EXPECT_EQ(repository_of_snapshot("/models/org/a-name"), std::nullopt);
  EXPECT_EQ(repository_of_snapshot("/cache/datasets--org--name/snapshots/c0ffee"), std::nullopt);
}

}  // namespace
}  // namespace winnow::hub
