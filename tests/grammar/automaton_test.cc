// Automata of ambiguous grammars. token_grammar_test.cc compares automata with a slow
// matcher.
#include "grammar/automaton.h"

#include <gtest/gtest.h>

#include <string>

#include "grammar/grammar_text.h"
#include "grammar_testing.h"

namespace winnow::grammar {
namespace {

// After "abab..." there are exponentially many possible stacks.
constexpr std::string_view kAmbiguous = "root ::= \"a\" b*\nb ::= \"b\" root root?";

Automaton::State after(Automaton& automaton, std::string_view text) {
  Automaton::State state = automaton.start();
  for (const char byte : text) {
    state =
        state == Automaton::kDead ? state : automaton.step(state, static_cast<std::uint8_t>(byte));
  }
  return state;
}

std::string repeated(std::string_view text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) {
    all += text;
  }
  return all;
}

TEST(Automaton, KeepsFewPlacesOfAnAmbiguousText) {
  const Grammar grammar = compile(parse_grammar(kAmbiguous));
  Automaton automaton(grammar);
  const Automaton::State state = after(automaton, repeated("ab", 500));
  ASSERT_NE(state, Automaton::kDead);
  EXPECT_LE(automaton.places(state).size(), grammar.nodes.size());
  EXPECT_FALSE(automaton.is_full());
}

TEST(Automaton, TakesWhatASlowMatcherTakes) {
  const Grammar grammar = compile(parse_grammar(kAmbiguous));
  Automaton automaton(grammar);
  for (int bits = 0; bits < 1 << 9; ++bits) {
    std::string text;
    for (int i = 0; i < 9; ++i) {
      text += (bits >> i & 1) != 0 ? 'b' : 'a';
    }
    testing::SlowMatcher slow(grammar);
    const bool goes_on = slow.push(text);
    const Automaton::State state = after(automaton, text);
    ASSERT_EQ(state != Automaton::kDead, goes_on) << text;
    if (goes_on) {
      ASSERT_EQ(automaton.ends(state), slow.ends()) << text;
    }
  }
}

TEST(Automaton, StopsWhenThereAreTooManySets) {
  const Grammar grammar = compile(parse_grammar(kAmbiguous));
  Automaton automaton(grammar, 100);
  EXPECT_EQ(after(automaton, repeated("ab", 500)), Automaton::kDead);
  EXPECT_TRUE(automaton.is_full());
}

}  // namespace
}  // namespace winnow::grammar
