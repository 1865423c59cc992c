#include "api/same_vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/spec_of.h"

namespace winnow::engine {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::filesystem::path kModel = WINNOW_SOURCE_DIR "/assets/base";

model::ModelSpec with_vocabulary(int tokens) {
  return winnow::testing::spec_of("llama", {.vocab = tokens});
}

std::string problem(int vocabulary, int draft_vocabulary, const std::filesystem::path& draft) {
  try {
    require_same_vocabulary(with_vocabulary(vocabulary), kModel, with_vocabulary(draft_vocabulary),
                            draft);
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

// A model whose tokenizer has other texts for pairs of tokens from id 1,000 on.
class OtherTokenizer {
 public:
  explicit OtherTokenizer(int pairs) {
    std::filesystem::create_directories(directory_);
    nlohmann::json tokenizer = nlohmann::json::parse(std::ifstream(kModel / "tokenizer.json"));
    std::vector<std::string> names(8192);
    for (const auto& [name, id] : tokenizer["model"]["vocab"].items()) {
      names.at(id.get<std::size_t>()) = name;
    }
    for (int i = 0; i < pairs; ++i) {
      const auto first = static_cast<std::size_t>(1000 + 2 * i);
      tokenizer["model"]["vocab"][names[first]] = first + 1;
      tokenizer["model"]["vocab"][names[first + 1]] = first;
    }
    std::ofstream(directory_ / "tokenizer.json") << tokenizer;
  }
  ~OtherTokenizer() { std::filesystem::remove_all(directory_); }
  OtherTokenizer(const OtherTokenizer&) = delete;
  OtherTokenizer& operator=(const OtherTokenizer&) = delete;
  [[nodiscard]] const std::filesystem::path& directory() const { return directory_; }

 private:
  std::filesystem::path directory_ =
      std::filesystem::path(::testing::TempDir()) /
      fmt::format("other-tokenizer-{}",
                  ::testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST(SameVocabulary, HasAsManyTokens) {
  EXPECT_EQ(problem(8192, 8192, kModel), "none");
  EXPECT_EQ(problem(8192, 8000, "small"),
            "--draft-model small: its vocabulary has 8000 tokens, the model's 8192: they must be "
            "the same");
}

TEST(SameVocabulary, HasTheSameTexts) {
  const OtherTokenizer other(50);
  const std::string text = problem(8192, 8192, other.directory());
  EXPECT_THAT(text, StartsWith("--draft-model " + other.directory().string() +
                               ": 100 of its 8192 tokens differ from the model's, first token "
                               "1000: "));
  EXPECT_THAT(text, HasSubstr("they must have the same tokenizer"));
}

TEST(SameVocabulary, MayHaveAFewOtherTexts) {
  const OtherTokenizer other(20);
  EXPECT_EQ(problem(8192, 8192, other.directory()), "none");
}

TEST(SameVocabulary, IsNotComparedWithoutTokenizers) {
  EXPECT_EQ(problem(8192, 8192, "no-such-directory"), "none");
  require_same_vocabulary(with_vocabulary(64), "", with_vocabulary(64), kModel);
}

}  // namespace
}  // namespace winnow::engine
