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
  document["model"]["type"] = "Unigram";
  write("tokenizer.json", document.dump());
  EXPECT_THAT(error(), HasSubstr("tokenizer.json: model: model \"Unigram\" is not supported"));
  write("tokenizer.model", tiny_sentencepiece());
  EXPECT_EQ(load_tokenizer(directory_)->encode("the"), (Ids{1, 265}));
  write("tokenizer.json", "{");  // damage is not glossed over
  EXPECT_THAT(error(), HasSubstr("tokenizer.json: not valid JSON"));
}

TEST_F(LoadTokenizer, ReadsTheConfigurationOfAModel) {
  write("tokenizer.model", tiny_sentencepiece());
  write("tokenizer_config.json",
        R"({"add_bos_token": false, "add_eos_token": true, "legacy": false,
            "added_tokens_decoder": {"266": {"content": "<pad>", "special": true}}})");
  write("added_tokens.json", R"({"<pad>": 266, "<tool>": 267})");
  const auto tokenizer = load_tokenizer(directory_);
  EXPECT_EQ(tokenizer->encode("the<pad>the<tool>"), (Ids{265, 266, 264, 267, 2}));
  EXPECT_TRUE(tokenizer->is_special(266));
  EXPECT_FALSE(tokenizer->is_special(267));
}

TEST_F(LoadTokenizer, Errors) {
  EXPECT_THAT(error(), HasSubstr("expected tokenizer.json or tokenizer.model"));
  write("tokenizer.model", "");
  EXPECT_THAT(error(), HasSubstr("tokenizer.model: no pieces"));
  write("tokenizer.model", tiny_sentencepiece());
  write("added_tokens.json", R"({"<pad>": "x"})");
  EXPECT_THAT(error(), HasSubstr("added_tokens.json: \"<pad>\": expected a token id"));
  write("added_tokens.json", "[]");
  EXPECT_THAT(error(), HasSubstr("added_tokens.json: expected an object"));
  write("added_tokens.json", "{}");
  write("tokenizer_config.json", R"({"added_tokens_decoder": {"x": {"content": "<pad>"}}})");
  EXPECT_THAT(error(), HasSubstr("added_tokens_decoder: \"x\" is not a token id"));
}

}  // namespace
}  // namespace winnow
