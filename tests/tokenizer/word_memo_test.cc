#include "tokenizer/word_memo.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/random.h"

namespace winnow {
namespace {

std::string random_word(Random& random, std::size_t longest) {
  std::string word(1 + static_cast<std::size_t>(random.uniform() * static_cast<double>(longest)),
                   ' ');
  for (char& c : word) {
    c = static_cast<char>(random.uniform() * 256.0);
  }
  return word;
}

// Words that share slots with other words, and words that are too long.
TEST(WordMemo, KnowsWhatItWasToldOrNothing) {
  WordMemo memo;
  Random random(5);
  std::map<std::string, std::vector<std::int32_t>> told;
  std::size_t known = 0;
  for (int i = 0; i < 30000; ++i) {
    const std::string word = random_word(random, 30);
    const auto count = static_cast<std::size_t>(random.uniform() * 13.0);
    const auto& ids = told.try_emplace(word, count, i).first->second;
    memo.put(word, ids);
    if (word.size() <= 22 && ids.size() <= 10) {
      EXPECT_TRUE(std::ranges::equal(memo.find(word), ids));
    }
  }
  for (const auto& [word, ids] : told) {
    const auto found = memo.find(word);
    known += found.empty() ? 0 : 1;
    EXPECT_TRUE(found.empty() || std::ranges::equal(found, ids)) << word.size();
  }
  EXPECT_GT(known, 4000U);
  EXPECT_TRUE(memo.find(std::string(23, '\0')).empty());
}

TEST(WordMemos, GiveEachCallerOneOfItsOwn) {
  WordMemos memos;
  auto first = memos.take();
  auto second = memos.take();
  EXPECT_NE(first.get(), second.get());
  const WordMemo* address = second.get();
  memos.give_back(std::move(second));
  EXPECT_EQ(memos.take().get(), address);
}

}  // namespace
}  // namespace winnow
