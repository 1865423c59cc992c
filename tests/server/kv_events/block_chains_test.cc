// Chains of blocks, compared with a plain list of states.
#include "server/kv_events/block_chains.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <span>
#include <utility>

namespace winnow::server {
namespace {

using Tokens = std::vector<std::int32_t>;

TEST(BlockChains, AChainIsThereWhileAStateCoversIt) {
  BlockChains chains(2);
  const auto first = chains.add(1, 0, Tokens{1, 2, 3, 4, 5}, "");
  ASSERT_TRUE(first);
  EXPECT_EQ(first->hashes.size(), 2U);  // the fifth token fills no block
  EXPECT_EQ(first->parent, std::nullopt);
  EXPECT_EQ(first->tokens, (Tokens{1, 2, 3, 4}));
  const auto longer = chains.add(2, 1, Tokens{6}, "");
  ASSERT_TRUE(longer);
  EXPECT_EQ(longer->parent, first->hashes[1]);
  EXPECT_EQ(longer->tokens, (Tokens{5, 6}));
  EXPECT_FALSE(chains.add(3, 0, Tokens{1, 2, 3}, "")) << "its only block is known";

  EXPECT_TRUE(chains.remove(1).empty()) << "the longer state covers them";
  EXPECT_EQ(chains.remove(2), (std::vector{longer->hashes[0], first->hashes[1]}));
  EXPECT_EQ(chains.remove(3), std::vector{first->hashes[0]});
  EXPECT_EQ(chains.size(), 0U);
}

TEST(BlockChains, AdaptersShareNothing) {
  BlockChains chains(1);
  const auto plain = chains.add(1, 0, Tokens{7}, "");
  const auto adapted = chains.add(2, 0, Tokens{7}, "legal");
  ASSERT_TRUE(plain && adapted);
  EXPECT_NE(plain->hashes, adapted->hashes);
}

// A router's view after all events.
struct Router {
  std::map<std::uint64_t, Tokens> blocks;  // all tokens up to a block's end

  void take(const StoredBlocks& stored, std::size_t block_size) {
    Tokens tokens = stored.parent ? blocks.at(*stored.parent) : Tokens();
    for (std::size_t i = 0; i < stored.hashes.size(); ++i) {
      const auto begin = stored.tokens.begin() + static_cast<std::ptrdiff_t>(i * block_size);
      tokens.insert(tokens.end(), begin, begin + static_cast<std::ptrdiff_t>(block_size));
      EXPECT_TRUE(blocks.emplace(stored.hashes[i], tokens).second) << "told twice";
    }
  }
  [[nodiscard]] std::set<Tokens> prefixes() const {
    std::set<Tokens> all;
    for (const auto& [hash, tokens] : blocks) {
      all.insert(tokens);
    }
    return all;
  }
};

TEST(BlockChains, RoutersKnowWhatStatesCover) {
  constexpr std::size_t kBlock = 3;
  std::mt19937 dice(1);
  BlockChains chains(kBlock);
  Router router;
  std::map<Tokens, engine::StateNumber> states;
  // The base of a state may be any of its prefixes, or none.
  const auto base_of = [&](const Tokens& tokens) {
    std::vector<std::pair<engine::StateNumber, std::size_t>> bases{{0, 0}};
    for (auto end = tokens.begin(); end != tokens.end(); ++end) {
      if (const auto state = states.find(Tokens(tokens.begin(), end)); state != states.end()) {
        bases.emplace_back(state->second, state->first.size());
      }
    }
    return bases[dice() % bases.size()];
  };
  for (int step = 0; step < 2000; ++step) {
    Tokens tokens(dice() % 14);
    std::ranges::generate(tokens, [&] { return static_cast<std::int32_t>(dice() % 2); });
    if (const auto state = states.find(tokens); state != states.end()) {
      for (const std::uint64_t hash : chains.remove(state->second)) {
        EXPECT_EQ(router.blocks.erase(hash), 1U);
      }
      states.erase(state);
    } else {
      const auto [base, known] = base_of(tokens);
      const engine::StateNumber number = static_cast<engine::StateNumber>(step) + 1;
      if (const auto stored = chains.add(number, base, std::span(tokens).subspan(known), "")) {
        router.take(*stored, kBlock);
      }
      states[tokens] = number;
    }
    std::set<Tokens> covered;
    for (const auto& [state, number] : states) {
      for (std::size_t end = kBlock; end <= state.size(); end += kBlock) {
        covered.emplace(state.begin(), state.begin() + static_cast<std::ptrdiff_t>(end));
      }
    }
    ASSERT_EQ(router.prefixes(), covered);
  }
}

}  // namespace
}  // namespace winnow::server
