// Thoughts that end within their budget, on the demo model's thought_tokenizer.
#include "server/openai/reasoning/thought_constraint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "ops/sampling.h"

namespace winnow::server {
namespace {

const Tokenizer& thought_tokenizer() {
  static const auto loaded =
      load_tokenizer(std::filesystem::path(WINNOW_SOURCE_DIR) / "assets/dms-cr8");
  return *loaded;
}

std::vector<std::int32_t> thought_tokens(std::string_view text) {
  return thought_tokenizer().encode(text, {.add_special = false, .parse_special = true});
}

/// Allows only one token.
class Only : public engine::TokenConstraint {
 public:
  explicit Only(std::int32_t token) : token_(token) {}
  [[nodiscard]] std::unique_ptr<engine::TokenConstraint> fork() const override {
    return std::make_unique<Only>(*this);
  }
  void allow(std::span<std::uint64_t> allowed) const override {
    std::ranges::fill(allowed, 0);
    allowed[static_cast<std::size_t>(token_) / 64] |= std::uint64_t{1} << (token_ % 64);
  }
  void accept(std::int32_t /*token*/) override {}

 private:
  std::int32_t token_;
};

std::vector<std::int32_t> allowed(const engine::TokenConstraint& constraint) {
  const auto vocab = static_cast<std::size_t>(thought_tokenizer().vocab_size());
  std::vector<std::uint64_t> bits(ops::mask_words(vocab), 0x5555);  // all must be overwritten
  constraint.allow(bits);
  std::vector<std::int32_t> tokens;
  for (std::size_t i = 0; i < vocab; ++i) {
    if ((bits[i / 64] >> (i % 64) & 1) != 0) {
      tokens.push_back(static_cast<std::int32_t>(i));
    }
  }
  return tokens;
}

ThoughtConstraint constraint(std::optional<int> budget, ThoughtStart start, bool held = true) {
  return ThoughtConstraint({.format = *find_thought_format("think"),
                            .budget = budget,
                            .end_tokens = {0},
                            .answer = held ? std::make_shared<const Only>(7) : nullptr},
                           thought_tokenizer(), start);
}

using ::testing::ElementsAre;

TEST(ThoughtConstraint, ABudgetEndsAThought) {
  ThoughtConstraint thinking = constraint(3, ThoughtStart::open);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(allowed(thinking).size(),
              static_cast<std::size_t>(thought_tokenizer().vocab_size() - 1))
        << "anything but the end of the answer";
    thinking.accept(thought_tokens("sea").front());
  }
  for (const std::int32_t token : thought_tokens("\n</think>\n\n")) {
    ASSERT_THAT(allowed(thinking), ElementsAre(token));
    thinking.accept(token);
  }
  EXPECT_THAT(allowed(thinking), ElementsAre(7)) << "the answer's own constraint";
}

TEST(ThoughtConstraint, AThoughtMayEndByItself) {
  ThoughtConstraint thinking = constraint(100, ThoughtStart::open);
  for (const std::int32_t token : thought_tokens("the sea</think>")) {
    EXPECT_GT(allowed(thinking).size(), 1U);
    thinking.accept(token);
  }
  EXPECT_THAT(allowed(thinking), ElementsAre(7));
}

TEST(ThoughtConstraint, NoBudgetAtAll) {
  EXPECT_THAT(allowed(constraint(0, ThoughtStart::open)),
              ElementsAre(thought_tokens("\n</think>\n\n").front()));
  EXPECT_THAT(allowed(constraint(std::nullopt, ThoughtStart::closed)), ElementsAre(7));
}

TEST(ThoughtConstraint, WithoutAFormAnAnswerMayBeginAThoughtItself) {
  ThoughtConstraint thinking = constraint(2, ThoughtStart::free, /*held=*/false);
  const auto begin = thought_tokens("<think>");
  for (const std::int32_t token : begin) {
    EXPECT_EQ(allowed(thinking).size(), static_cast<std::size_t>(thought_tokenizer().vocab_size()));
    thinking.accept(token);
  }
  thinking.accept(thought_tokens("sea").front());
  const auto copy = thinking.fork();
  thinking.accept(thought_tokens("sea").front());
  EXPECT_EQ(allowed(thinking).size(), 1U);
  EXPECT_GT(allowed(*copy).size(), 1U) << "a fork counts by itself";
  ThoughtConstraint plain = constraint(2, ThoughtStart::free, /*held=*/false);
  for (const std::int32_t token : thought_tokens("The sea was blue")) {
    plain.accept(token);
  }
  EXPECT_EQ(allowed(plain).size(), static_cast<std::size_t>(thought_tokenizer().vocab_size()));
}

TEST(ThoughtConstraint, InChannelsTheBudgetIsOfAllThoughts) {
  ThoughtConstraint thinking({.format = *find_thought_format("harmony"),
                              .budget = 3,
                              .end_tokens = {0},
                              .answer = nullptr},
                             thought_tokenizer(), ThoughtStart::free);
  const auto say = [&thinking](std::string_view text) {
    for (const std::int32_t token : thought_tokens(text)) {
      EXPECT_GT(allowed(thinking).size(), 1U) << text;
      thinking.accept(token);
    }
  };
  const auto expect_forced = [&thinking](std::string_view text) {
    for (const std::int32_t token : thought_tokens(text)) {
      ASSERT_THAT(allowed(thinking), ElementsAre(token)) << text;
      thinking.accept(token);
    }
    EXPECT_GT(allowed(thinking).size(), 1U) << text;
  };
  const std::int32_t sea = thought_tokens("sea").front();
  const std::string begin = "<|channel|>analysis<|message|>";
  say(begin);
  for (int i = 0; i < 3; ++i) {
    thinking.accept(sea);
  }
  expect_forced("<|end|><|start|>assistant");
  say("<|channel|>commentary<|message|>Let me see.<|end|><|start|>assistant" + begin);
  expect_forced("<|end|><|start|>assistant<|channel|>final<|message|>");
  say("The sea.");
}

/// Allows only one text, token by token.
class Spelled : public engine::TokenConstraint {
 public:
  explicit Spelled(std::string_view text) : tokens_(thought_tokens(text)) {}
  [[nodiscard]] std::unique_ptr<engine::TokenConstraint> fork() const override {
    return std::make_unique<Spelled>(*this);
  }
  void allow(std::span<std::uint64_t> allowed) const override {
    if (at_ < tokens_.size()) {
      Only(tokens_[at_]).allow(allowed);
    } else {
      std::ranges::fill(allowed, 0);
    }
  }
  void accept(std::int32_t token) override {
    at_ = at_ < tokens_.size() && token == tokens_[at_] ? at_ + 1 : tokens_.size();
  }

 private:
  std::vector<std::int32_t> tokens_;
  std::size_t at_ = 0;
};

// Thought and answer begin with the same tokens here.
TEST(ThoughtConstraint, AThoughtOfManyTokensMayBeginBeforeAForm) {
  const ThoughtFormat& harmony = *find_thought_format("harmony");
  ThoughtConstraint thinking({.format = harmony,
                              .budget = 100,
                              .end_tokens = {0},
                              .answer = std::make_shared<const Spelled>(harmony.answer)},
                             thought_tokenizer(), ThoughtStart::free);
  const auto answers = thinking.fork();
  for (const std::int32_t token : thought_tokens(harmony.answer)) {
    EXPECT_THAT(allowed(*answers), ::testing::Contains(token)) << "without a thought";
    answers->accept(token);
  }
  EXPECT_THAT(allowed(*answers), ElementsAre()) << "the form has ended";
  for (const std::int32_t token : thought_tokens(harmony.begin)) {
    EXPECT_THAT(allowed(thinking), ::testing::Contains(token));
    EXPECT_LE(allowed(thinking).size(), 2U);
    thinking.accept(token);
  }
  thinking.accept(thought_tokens("sea").front());
  for (const std::int32_t token : thought_tokens("<|end|>")) {  // ends by itself, before its budget
    thinking.accept(token);
  }
  for (const std::int32_t token : thought_tokens("<|start|>assistant")) {
    ASSERT_THAT(allowed(thinking), ElementsAre(token));
    thinking.accept(token);
  }
  EXPECT_THAT(allowed(thinking), ElementsAre(thought_tokens(harmony.answer).front()));
}

}  // namespace
}  // namespace winnow::server
