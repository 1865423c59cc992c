// Files that other projects were reported to load wrongly, or not at all; they are not part of
// winnow's repository.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "model/checkpoint.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace winnow {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using Ids = std::vector<std::int32_t>;

ordered_json read_json(const fs::path& path) {
  return ordered_json::parse(std::ifstream(path));
}

void check_texts(const fs::path& directory, const ordered_json& expected) {
  const auto tokenizer = load_tokenizer(directory);
  Ids last;
  for (const auto& [text, value] : expected.items()) {
    if (text == "decode skip_special") {
      EXPECT_EQ(tokenizer->decode(last, /*skip_special=*/true), value.get<std::string>());
    } else {
      last = tokenizer->encode(text);
      EXPECT_EQ(last, value.get<Ids>()) << text;
    }
  }
}

void check_prompt(const fs::path& directory, const std::string& expected) {
  const ordered_json request = read_json(directory / "request.json");
  const auto chat = ChatTemplate::load(directory);
  ASSERT_TRUE(chat.has_value());
  EXPECT_EQ(chat->render(request["messages"], true, request["variables"]), expected);
}

// Each directory has an expected.json: "opens", ids of texts, or the prompt of a request.
TEST(LoadingCases, LoadAsTheyShould) {
  const fs::path cases = WINNOW_SOURCE_DIR "/../shared/cases/loading";
  if (!fs::exists(cases)) {
    GTEST_SKIP() << cases << " is not here";
  }
  for (const auto& entry : fs::directory_iterator(cases)) {
    const bool rope = entry.path().filename() == "yarn_qwen25";  // tests RoPE, has no files
    if (rope || !fs::exists(entry.path() / "expected.json")) {
      continue;
    }
    SCOPED_TRACE(entry.path().filename().string());
    const ordered_json expected = read_json(entry.path() / "expected.json")["expected"];
    try {
      if (expected == "opens") {
        EXPECT_GT(model::Checkpoint::open(entry.path()).parameter_count(), 0);
      } else if (expected.is_string()) {
        check_prompt(entry.path(), expected);
      } else {
        check_texts(entry.path(), expected);
      }
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

}  // namespace
}  // namespace winnow
