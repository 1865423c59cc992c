// Compares the radix tree with a plain list of the inserted prefixes.
#include "engine/prefix_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "kvcache/property.h"

namespace winnow::engine {
namespace {

class State : public SequenceState {
 public:
  State(int length, int* alive) : length_(length), alive_(alive) { ++*alive_; }
  ~State() override { --*alive_; }
  [[nodiscard]] int length() const override { return length_; }
  [[nodiscard]] std::unique_ptr<SequenceState> fork() const override {
    return std::make_unique<State>(length_, alive_);
  }
  [[nodiscard]] CacheUsage usage() const override { return {}; }
  [[nodiscard]] kvcache::SavedSequence save() const override { return {}; }

 private:
  int length_;
  int* alive_;
};

using Tokens = std::vector<std::int32_t>;

void insert(PrefixCache& cache, const Tokens& tokens, int* alive) {
  cache.insert(tokens, std::make_unique<State>(static_cast<int>(tokens.size()), alive));
}

TEST(PrefixCache, FindsTheLongestPrefixAndWhereTokensPart) {
  int alive = 0;
  PrefixCache cache;
  insert(cache, {1, 2, 3, 4}, &alive);
  insert(cache, {1, 2}, &alive);
  EXPECT_EQ(cache.find(Tokens{1, 2, 3}).length, 2);
  EXPECT_EQ(cache.find(Tokens{1, 2, 3}).common, 3);
  EXPECT_EQ(cache.find(Tokens{1, 2, 3, 4, 5}).length, 4);
  EXPECT_EQ(cache.find(Tokens{1, 9}).length, 0);
  EXPECT_EQ(cache.find(Tokens{1, 9}).state, nullptr);
  EXPECT_EQ(cache.find(Tokens{1, 9}).common, 1);
  EXPECT_EQ(cache.find(Tokens{}).common, 0);
  EXPECT_EQ(cache.tokens(), 4U);
}

class Listener : public PrefixListener {
 public:
  void prefix_stored(StateNumber number, StateNumber base, std::span<const std::int32_t> tokens,
                     const model::Lora* /*adapter*/) override {
    Tokens all = base == 0 ? Tokens{} : known.at(base);
    all.insert(all.end(), tokens.begin(), tokens.end());
    told += tokens.size();
    EXPECT_TRUE(known.emplace(number, all).second);
  }
  void prefix_removed(StateNumber number) override { EXPECT_EQ(known.erase(number), 1U); }

  [[nodiscard]] std::set<Tokens> prefixes() const {
    std::set<Tokens> all;
    for (const auto& [number, tokens] : known) {
      EXPECT_TRUE(all.insert(tokens).second) << "two states of a prefix";
    }
    return all;
  }

  std::map<StateNumber, Tokens> known;
  std::size_t told = 0;  // tokens in all events
};

TEST(PrefixCache, AListenerKnowsWhichPrefixesThereAre) {
  int alive = 0;
  Listener listener;
  PrefixCache cache(&listener);
  insert(cache, {1, 2, 3, 4}, &alive);
  insert(cache, {1, 2}, &alive);
  insert(cache, {1, 2}, &alive);  // replaces the one before
  insert(cache, {1, 2, 5}, &alive);
  EXPECT_EQ(listener.prefixes(), (std::set<Tokens>{{1, 2}, {1, 2, 3, 4}, {1, 2, 5}}));
  cache.take_oldest();
  EXPECT_EQ(listener.prefixes(), (std::set<Tokens>{{1, 2}, {1, 2, 5}}));
  cache.take_oldest();
  EXPECT_EQ(listener.prefixes(), (std::set<Tokens>{{1, 2, 5}}));
  insert(cache, {1, 2, 3}, &alive);  // where there is no state any more
  EXPECT_EQ(listener.prefixes(), (std::set<Tokens>{{1, 2, 3}, {1, 2, 5}}));
}

TEST(PrefixCache, AListenerIsToldOfAConversationOnce) {
  constexpr int kStates = 100;
  constexpr std::size_t kStep = 10;
  int alive = 0;
  Listener listener;
  PrefixCache cache(&listener);
  Tokens tokens;
  for (int i = 0; i < kStates; ++i) {
    tokens.resize(tokens.size() + kStep, i);
    insert(cache, tokens, &alive);
  }
  EXPECT_EQ(listener.known.size(), std::size_t{kStates});
  EXPECT_EQ(listener.told, tokens.size());
}

TEST(PrefixCache, AdaptersShareNothing) {
  int alive = 0;
  const int places[2] = {};
  const auto adapter = [&places](int i) {  // the cache uses only its address
    return PrefixCache::Adapter(std::shared_ptr<void>(),
                                reinterpret_cast<const model::Lora*>(&places[i]));
  };
  PrefixCache cache;
  insert(cache, {1, 2}, &alive);
  cache.insert(Tokens{1, 2, 3}, std::make_unique<State>(3, &alive),
               PrefixCache::Purpose::continuation, adapter(0));
  EXPECT_EQ(cache.find(Tokens{1, 2, 3, 4}).length, 2);
  EXPECT_EQ(cache.find(Tokens{1, 2, 3, 4}, adapter(0)).length, 3);
  EXPECT_EQ(cache.find(Tokens{1, 2, 3, 4}, adapter(1)).length, 0);
  EXPECT_EQ(cache.find(Tokens{1, 2, 3, 4}, adapter(1)).common, 0);
  EXPECT_EQ(cache.tokens(), 5U);
  EXPECT_EQ(cache.size(), 2U);
  EXPECT_TRUE(cache.touch(Tokens{1, 2, 3}, adapter(0)));
  EXPECT_FALSE(cache.touch(Tokens{1, 2, 3}, adapter(1)));
  // States with an adapter are not stored in files.
  const auto unstored = cache.take_unstored();
  ASSERT_TRUE(unstored);
  EXPECT_EQ(unstored->tokens, (Tokens{1, 2}));
  EXPECT_FALSE(cache.take_unstored());
  EXPECT_EQ(cache.find(Tokens{1, 2}).length, 2);
  const auto oldest = cache.take_oldest();
  ASSERT_TRUE(oldest);
  EXPECT_EQ(oldest->tokens, (Tokens{1, 2, 3}));
  EXPECT_FALSE(oldest->is_unstored());
}

TEST(PrefixCache, WhatWasUsedLeastRecentlyGoesFirst) {
  int alive = 0;
  PrefixCache cache;
  insert(cache, {1, 1}, &alive);
  insert(cache, {2, 2}, &alive);
  EXPECT_EQ(cache.find(Tokens{1, 1, 1}).length, 2);
  EXPECT_TRUE(cache.take_oldest());
  EXPECT_EQ(cache.find(Tokens{2, 2}).state, nullptr);
  EXPECT_EQ(cache.find(Tokens{1, 1}).length, 2);
  EXPECT_TRUE(cache.take_oldest());
  EXPECT_FALSE(cache.take_oldest());
  EXPECT_EQ(alive, 0);
  EXPECT_EQ(cache.tokens(), 0U);
}

TEST(PrefixCache, WhatIsSparedGoesLast) {
  int alive = 0;
  PrefixCache cache;
  insert(cache, {1, 1, 1}, &alive);
  insert(cache, {2, 2}, &alive);
  insert(cache, {3, 3, 3}, &alive);
  const auto is_spared = [](const SequenceState& state) { return state.length() == 3; };
  EXPECT_EQ(cache.take_oldest(is_spared)->tokens, (Tokens{2, 2}));
  EXPECT_EQ(cache.take_oldest(is_spared)->tokens, (Tokens{1, 1, 1}));
  EXPECT_EQ(cache.take_oldest(is_spared)->tokens, (Tokens{3, 3, 3}));
  EXPECT_FALSE(cache.take_oldest(is_spared));
}

TEST(PrefixCache, ATouchIsAUse) {
  int alive = 0;
  PrefixCache cache;
  insert(cache, {1, 1, 1}, &alive);
  insert(cache, {2, 2}, &alive);
  EXPECT_FALSE(cache.touch(Tokens{1, 1}, nullptr));
  EXPECT_FALSE(cache.touch(Tokens{1, 1, 1, 1}, nullptr));
  EXPECT_TRUE(cache.touch(Tokens{1, 1, 1}, nullptr));
  EXPECT_EQ(cache.take_oldest()->tokens, (Tokens{2, 2}));
  EXPECT_EQ(cache.take_oldest()->tokens, (Tokens{1, 1, 1}));
}

TEST(PrefixCache, TellsWhatIsWorthAPlaceOnDisk) {
  using Purpose = PrefixCache::Purpose;
  int alive = 0;
  PrefixCache cache;
  const auto put = [&](const Tokens& tokens, Purpose purpose) {
    cache.insert(tokens, std::make_unique<State>(static_cast<int>(tokens.size()), &alive), purpose);
  };
  put({1}, Purpose::interval);
  put({1, 2}, Purpose::interval);
  put({1, 2, 3}, Purpose::continuation);
  put({1, 2, 3, 4}, Purpose::stored);
  EXPECT_EQ(cache.take_unstored()->tokens, (Tokens{1, 2, 3}));
  EXPECT_FALSE(cache.take_unstored());
  cache.find(Tokens{1, 2, 9});  // a sequence continued from there
  EXPECT_EQ(cache.take_unstored()->tokens, (Tokens{1, 2}));
  EXPECT_FALSE(cache.take_unstored());
  put({1, 2, 3, 4}, Purpose::continuation);  // again, but it is still on disk
  EXPECT_FALSE(cache.take_unstored());
  put({5}, Purpose::continuation);
  for (std::optional<PrefixCache::Prefix> prefix; (prefix = cache.take_oldest());) {
    EXPECT_EQ(prefix->is_unstored(), prefix->tokens == Tokens{5});
    EXPECT_EQ(prefix->state->length(), static_cast<int>(prefix->tokens.size()));
  }
  EXPECT_EQ(cache.tokens(), 0U);
}

int common_length(const Tokens& a, const Tokens& b) {
  return static_cast<int>(std::ranges::mismatch(a, b).in1 - a.begin());
}

TEST(PrefixCache, AgreesWithAListOfWhatItHolds) {
  EXPECT_TRUE(winnow::testing::holds("find, insert, remove and take_oldest", 200, [] {
    int alive = 0;
    PrefixCache cache;
    std::vector<Tokens> held;  // least recently used first
    const int steps = *rc::gen::inRange(1, 60);
    for (int step = 0; step < steps; ++step) {
      const auto tokens =
          *rc::gen::nonEmpty(rc::gen::container<Tokens>(rc::gen::inRange<std::int32_t>(0, 3)));
      switch (*rc::gen::inRange(0, 6)) {
        case 0:
        case 1:
          insert(cache, tokens, &alive);
          std::erase(held, tokens);
          held.push_back(tokens);
          break;
        case 2: {
          const auto oldest = cache.take_oldest();
          RC_ASSERT(oldest.has_value() == !held.empty());
          if (oldest) {
            RC_ASSERT(oldest->tokens == held.front());
            held.erase(held.begin());
          }
          break;
        }
        case 3:
          cache.remove(tokens, nullptr);
          std::erase(held, tokens);
          break;
        default: {
          const auto match = cache.find(tokens);
          int common = 0;
          const Tokens* best = nullptr;
          for (const Tokens& candidate : held) {
            common = std::max(common, common_length(candidate, tokens));
            if (common_length(candidate, tokens) == static_cast<int>(candidate.size()) &&
                (best == nullptr || candidate.size() > best->size())) {
              best = &candidate;
            }
          }
          RC_ASSERT(match.common == common);
          RC_ASSERT(match.length == (best == nullptr ? 0 : static_cast<int>(best->size())));
          RC_ASSERT((match.state != nullptr) == (best != nullptr));
          if (best != nullptr) {
            const Tokens used = *best;
            std::erase(held, used);
            held.push_back(used);
          }
        }
      }
      RC_ASSERT(cache.size() == held.size());
      RC_ASSERT(alive == static_cast<int>(held.size()));
    }
  }));
}

}  // namespace
}  // namespace winnow::engine
