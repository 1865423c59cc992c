// State files: what was written is read; anything else is refused with a one-line reason.
#include "engine/state_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "checkpoint/checkpoint_testing.h"
#include "engine/saved_states.h"

namespace winnow::engine {
namespace {

using ::testing::HasSubstr;

std::string complaint(const std::string& image, const StateKind& kind) {
  return error_of([&] { parse_state(std::as_bytes(std::span(image)), "s.state", kind); });
}

class StateFile : public ::testing::Test {
 protected:
  StateFile() { write_state(path_, kind_, state_); }

  TempDir directory_;
  std::filesystem::path path_ = directory_.path() / "s.state";
  StateKind kind_ = testing::dms_kind("model a");
  SavedState state_ = testing::dms_state(40);
};

TEST_F(StateFile, HoldsTheState) {
  const SavedState read = read_state(path_, kind_);
  EXPECT_EQ(read.tokens, state_.tokens);
  EXPECT_EQ(read.cache.length, 40);
  EXPECT_EQ(read.cache.archived, state_.cache.archived);
  EXPECT_EQ(read.cache.entries, state_.cache.entries);
  EXPECT_EQ(read.cache.marks, state_.cache.marks);
  EXPECT_EQ(read.cache.state, state_.cache.state);
}

TEST_F(StateFile, IsItsOwnersAndKnownAsAState) {
  EXPECT_EQ(std::filesystem::status(path_).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  EXPECT_TRUE(claims_to_be_state(path_));
  const std::string whole = directory_.read("s.state");
  const auto claims = [&](const std::string& bytes) {
    directory_.write("other", bytes);
    return claims_to_be_state(directory_.path() / "other");
  };
  EXPECT_TRUE(claims(whole.substr(0, whole.size() - 1)));
  std::string later = whole;
  later.replace(later.find("winnow-state-1"), 14, "winnow-state-2");
  EXPECT_TRUE(claims(later));
  for (const std::string& foreign : {std::string(), whole.substr(0, 100), std::string(99, '\xff'),
                                     std::string("A text, as one would ask about it.")}) {
    EXPECT_FALSE(claims(foreign));
  }
  std::string weights = whole;
  weights.replace(weights.find("winnow-state-1"), 14, "pt            ");
  EXPECT_FALSE(claims(weights));
  EXPECT_FALSE(claims_to_be_state(directory_.path()));
  EXPECT_FALSE(claims_to_be_state(directory_.path() / "absent"));
}

TEST_F(StateFile, IsForItsOwnKindOnly) {
  const auto refused = [&](const std::function<void(StateKind&)>& change) {
    StateKind other = kind_;
    change(other);
    return error_of([&] { read_state(path_, other); });
  };
  EXPECT_THAT(refused([](StateKind& k) { k.model = "model b"; }),
              HasSubstr("s.state: was saved for model \"model a\", this run has \"model b\""));
  EXPECT_THAT(refused([](StateKind& k) { k.rule.window = 10; }),
              HasSubstr("was saved for window \"9\", this run has \"10\""));
  EXPECT_THAT(refused([](StateKind& k) { k.rule.shift = 0; }), HasSubstr("shift"));
  EXPECT_THAT(refused([](StateKind& k) {
                k.layout = {ops::EntryFormat::i8, 16};
              }),
              HasSubstr("was saved for kv dtype \"bf16\", this run has \"int8\""));
  EXPECT_THAT(refused([](StateKind& k) { k.compute = DType::f32; }), HasSubstr("dtype"));
  EXPECT_THAT(refused([](StateKind& k) { k.weights = WeightStorage::int4; }),
              HasSubstr("was saved for weights \"as stored\", this run has \"int4\""));
  EXPECT_THAT(refused([](StateKind& k) { k.deterministic = true; }), HasSubstr("deterministic"));
  EXPECT_THAT(
      refused([](StateKind& k) { k.rule.traits = &kvcache::traits_of(kvcache::RuleKind::dense); }),
      HasSubstr("was saved for cache \"dms\", this run has \"dense\""));
  EXPECT_THAT(refused([](StateKind& k) { k.shape.layers = 3; }), HasSubstr("layers"));
  EXPECT_THAT(refused([](StateKind& k) {
                k.shape.reach = {0, 8};
              }),
              HasSubstr("does not say for which reach it was saved"));
  EXPECT_THAT(refused([](StateKind& k) { k.shape.states.layers = 2; }),
              HasSubstr("was saved for recurrent state \"1 x 5\", this run has \"2 x 5\""));
}

TEST_F(StateFile, EveryFlippedBitIsSeen) {
  const std::string whole = directory_.read("s.state");
  ASSERT_EQ(complaint(whole, kind_), "no error");
  Random random(5);
  int harmless = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = whole;
    const auto bit =
        static_cast<std::size_t>(random.uniform() * 8.0 * static_cast<double>(whole.size()));
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    if (complaint(damaged, kind_) == "no error") {
      // One whitespace character of the header may become another.
      EXPECT_TRUE(std::isspace(whole[bit / 8])) << "bit " << bit;
      ++harmless;
    }
  }
  EXPECT_LT(harmless, 30);
}

TEST_F(StateFile, NoPartOfItIsTakenForTheWhole) {
  const std::string whole = directory_.read("s.state");
  for (std::size_t size = 0; size < whole.size(); size += size < 600 ? 1 : 97) {
    EXPECT_NE(complaint(whole.substr(0, size), kind_), "no error") << size;
  }
  EXPECT_NE(complaint(whole + "x", kind_), "no error");
}

TEST_F(StateFile, OtherFilesAndVersionsAreRefused) {
  std::string other = directory_.read("s.state");
  other.replace(other.find("winnow-state-1"), 14, "winnow-state-2");
  EXPECT_THAT(complaint(other, kind_),
              HasSubstr("has format \"winnow-state-2\", expected winnow-state-1"));
  const std::vector<float> values(4);
  write_safetensors(path_,
                    {{"x", {DType::f32, {4}, reinterpret_cast<const std::byte*>(&values[0])}}});
  EXPECT_THAT(complaint(directory_.read("s.state"), kind_),
              HasSubstr("is not a winnow state file"));
  EXPECT_NE(complaint("hello", kind_), "no error");
  EXPECT_THROW(read_state(directory_.path() / "absent", kind_), Error);
  EXPECT_EQ(find_state(directory_.path() / "absent", kind_), std::nullopt);
  EXPECT_THROW(read_state(directory_.path(), kind_), Error);
}

// A checksum only protects from accidents: the writer of a file can write its checksum, too.
TEST_F(StateFile, ASoundChecksumIsNotEnough) {
  state_.cache.archived[0] = 1000;
  write_state(path_, kind_, state_);
  EXPECT_THAT(complaint(directory_.read("s.state"), kind_),
              HasSubstr("s.state: an archive of 1000 entries, expected 0 to 30"));
}

}  // namespace
}  // namespace winnow::engine
