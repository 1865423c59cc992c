#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "tiny.h"
#include "tokenizer/tokenizer.h"

namespace winnow {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::Ids;
using testing::tiny_sentencepiece;
using testing::tiny_tokenizer;

class LoadTokenizer : public ::testing::Test {
 protected:
  LoadTokenizer() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    directory_ =
        fs::path(::testing::TempDir()) / ("winnow_load_tokenizer_" + std::string(test->name()));
    fs::remove_all(directory_);
    fs::create_directories(directory_);
  }
  ~LoadTokenizer() override { fs::remove_all(directory_); }

  void write(const char* name, const std::string& text) const {
    std::ofstream(directory_ / name, std::ios::binary) << text;
  }
  [[nodiscard]] std::string error() const {
    try {
      (void)load_tokenizer(directory_);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  fs::path directory_;
};

TEST_F(LoadTokenizer, PrefersJson) {
  write("tokenizer.json", tiny_tokenizer().dump());
  write("tokenizer.model", tiny_sentencepiece());
  EXPECT_EQ(load_tokenizer(directory_)->encode("the"), (Ids{257}));
}

TEST_F(LoadTokenizer, ModelStandsInForAnUnknownKindOfJson) {
  auto document = tiny_tokenizer();
  document["model"]["type"] = "CharLevel";
  write("tokenizer.json", document.dump());
  EXPECT_THAT(error(), HasSubstr("tokenizer.json: model: model \"CharLevel\" is not supported"));
  write("tokenizer.model", tiny_sentencepiece());
  EXPECT_EQ(load_tokenizer(directory_)->encode("the"), (Ids{1, 265}));
  write("tokenizer.json", "{");  // a damaged file is an error, not skipped
  EXPECT_THAT(error(), HasSubstr("tokenizer.json: not valid JSON"));
}

TEST_F(LoadTokenizer, ReadsTheConfigurationOfAModel) {
  write("tokenizer.model", tiny_sentencepiece());
  write("tokenizer_config.json",
        R"({"add_bos_token": false, "add_eos_token": true, "legacy": false,
            "added_tokens_decoder": {"266": {"content": "<pad>", "special": true}}})");
  const auto tokenizer = load_tokenizer(directory_);
  EXPECT_EQ(tokenizer->encode("the<pad>the"), (Ids{265, 266, 264, 2}));
  EXPECT_TRUE(tokenizer->is_special(266));
}

TEST_F(LoadTokenizer, ReadsTheOlderFilesOfAModel) {
  write("tokenizer.model", tiny_sentencepiece());
  write("tokenizer_config.json", R"({"add_bos_token": false, "legacy": false})");
  write("special_tokens_map.json", R"({"pad_token": "<pad>"})");
  write("added_tokens.json", R"({"<tool>": 267, "<pad>": 266})");
  const auto tokenizer = load_tokenizer(directory_);
  EXPECT_EQ(tokenizer->encode("the<pad>the<tool>"), (Ids{265, 266, 264, 267}));
  EXPECT_TRUE(tokenizer->is_special(266));
  EXPECT_FALSE(tokenizer->is_special(267));
}

// Tokens that are not in tokenizer.json but in another file, for each such file.
TEST_F(LoadTokenizer, TokensBesideAJson) {
  const std::string text = "the<a>the<b>";
  const auto with = [&](const char* file, const std::string& json) {
    fs::remove_all(directory_);
    fs::create_directories(directory_);
    write("tokenizer.json", tiny_tokenizer().dump());
    write(file, json);
    return load_tokenizer(directory_);
  };
  const Ids both{257, 261, 257, 262};
  const auto listed = with("tokenizer_config.json", R"({"added_tokens_decoder": {
      "10": {"content": "<b>", "special": true}, "9": {"content": "<a>"}}})");
  EXPECT_EQ(listed->encode(text), both) << "in the order of their ids, which are not theirs";
  EXPECT_FALSE(listed->is_special(261));
  EXPECT_TRUE(listed->is_special(262));
  EXPECT_EQ(with("added_tokens.json", R"({"<b>": 10, "<a>": 9})")->encode(text), both);
  EXPECT_FALSE(with("added_tokens.json", R"({"<a>": 10})")->is_special(261));
  for (const char* key : {"extra_special_tokens", "additional_special_tokens"}) {
    const std::string list = std::string("{\"") + key + "\": [\"<a>\", {\"content\": \"<b>\"}]}";
    for (const char* file : {"tokenizer_config.json", "special_tokens_map.json"}) {
      const auto tokenizer = with(file, list);
      EXPECT_EQ(tokenizer->encode(text), both) << file << key;
      EXPECT_TRUE(tokenizer->is_special(261) && tokenizer->is_special(262));
    }
  }
  const auto named =
      with("tokenizer_config.json",
           R"({"pad_token": "<a>", "mask_token": {"content": "<b>", "lstrip": true}})");
  EXPECT_EQ(named->encode("the<a>the  <b>"), both);
  EXPECT_TRUE(named->is_special(261) && named->is_special(262));
}

// The cases were written by make_token_file_cases.py with transformers.
TEST_F(LoadTokenizer, FilesBesideAJsonAsInTransformers) {
  const auto document = nlohmann::json::parse(
      std::ifstream(WINNOW_SOURCE_DIR "/tests/tokenizer/token_file_cases.json"));
  for (const auto& item : document["cases"]) {
    SCOPED_TRACE(item.dump());
    fs::remove_all(directory_);
    fs::create_directories(directory_);
    auto tokenizer_json = document["tokenizer"];
    tokenizer_json["added_tokens"] = item["added_tokens"];
    write("tokenizer.json", tokenizer_json.dump());
    for (const auto& [name, content] : item["files"].items()) {
      write(name.c_str(), content.dump());
    }
    const auto tokenizer = load_tokenizer(directory_);
    for (std::size_t i = 0; i < document["texts"].size(); ++i) {
      const Ids ids = item["ids"][i];
      EXPECT_EQ(tokenizer->encode(document["texts"][i].get<std::string>()), ids);
      EXPECT_EQ(tokenizer->decode(ids, true), item["bare"][i].get<std::string>());
    }
  }
}

TEST_F(LoadTokenizer, FlagsBesideAJson) {
  write("tokenizer.json", tiny_tokenizer().dump());
  EXPECT_EQ(load_tokenizer(directory_)->encode("the <think> the"), (Ids{257, 32, 260, 258}));
  write("tokenizer_config.json", R"({"added_tokens_decoder": {
      "260": {"content": "<think>", "special": true, "lstrip": true, "rstrip": true}}})");
  const auto tokenizer = load_tokenizer(directory_);
  EXPECT_EQ(tokenizer->encode("the <think> the"), (Ids{257, 260, 257}));
  EXPECT_TRUE(tokenizer->is_special(260));
  EXPECT_EQ(tokenizer->decode(Ids{257, 260}, true), "the");

  // Without a list of tokens, a named token is special.
  write("tokenizer_config.json", R"({"eos_token": "<think>"})");
  EXPECT_TRUE(load_tokenizer(directory_)->is_special(260));
}

TEST_F(LoadTokenizer, Errors) {
  EXPECT_THAT(error(), HasSubstr("expected tokenizer.json or tokenizer.model"));
  write("tokenizer.model", "version https://git-lfs.github.com/spec/v1\n");
  EXPECT_THAT(error(), HasSubstr("tokenizer.model: a Git LFS pointer"));
  write("tokenizer.model", "");
  EXPECT_THAT(error(), HasSubstr("tokenizer.model: no pieces"));
  write("tokenizer.model", tiny_sentencepiece());
  write("added_tokens.json", R"({"<pad>": "x"})");
  EXPECT_THAT(error(), HasSubstr("added_tokens.json: \"<pad>\": expected a token id"));
  write("added_tokens.json", "[]");
  EXPECT_THAT(error(), HasSubstr("added_tokens.json: expected an object"));
  write("added_tokens.json", "{}");
  write("tokenizer_config.json", R"({"extra_special_tokens": [3]})");
  EXPECT_THAT(error(), HasSubstr("extra_special_tokens[0]: expected a string"));
  write("tokenizer_config.json", R"({"added_tokens_decoder": {"x": {"content": "<pad>"}}})");
  EXPECT_THAT(error(), HasSubstr("added_tokens_decoder: \"x\" is not a token id"));
}

}  // namespace
}  // namespace winnow
