// Masks compared with a matcher that knows no tokens.
#include "grammar/token_grammar.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "grammar/grammar_text.h"
#include "grammar/json_schema.h"
#include "grammar/regular.h"
#include "grammar_testing.h"

namespace winnow::grammar {
namespace {

// Few different bytes, so that tokens match grammars; some are parts of non-ASCII characters.
rc::Gen<std::string> any_text(int most) {
  return rc::gen::mapcat(rc::gen::inRange(0, most + 1), [](int size) {
    return rc::gen::container<std::string>(
        static_cast<std::size_t>(size),
        rc::gen::element<char>('a', 'b', 'c', '"', ',', '\xC3', '\xA9', '1'));
  });
}

// A regular language with limited repetition.
ExpressionPtr any_language() {
  const ExpressionPtr part =
      choice({bytes(*rc::gen::element<std::string>("a", "ab", "\xC3\xA9", "1\"")),
              characters({{'b', 'c'}, {0xE9, 0xE9}})});
  const int least = *rc::gen::inRange(0, 12);
  const Spelling spelling = *rc::gen::element(Spelling::plain, Spelling::json_string);
  return regular(Regular::of(*repeat(part, least, least + *rc::gen::inRange(0, 20))), spelling);
}

ExpressionPtr any_expression(int depth, int rules) {
  const int kind = *rc::gen::inRange(0, depth == 0 ? 3 : 7);
  const auto parts = [&] {
    std::vector<ExpressionPtr> made;
    for (int count = *rc::gen::inRange(1, 4); count > 0; --count) {
      made.push_back(any_expression(depth - 1, rules));
    }
    return made;
  };
  switch (kind) {
    case 0:
      return bytes(*any_text(3));
    case 1:
      return characters(
          {{'a', static_cast<std::uint32_t>(*rc::gen::element('a', 'b', 'c'))}, {0xE9, 0xE9}});
    case 2:
      return any_language();
    case 3:
      return sequence(parts());
    case 4:
      return choice(parts());
    case 5: {
      const int least = *rc::gen::element(0, 1, 2, 12);
      const int more = *rc::gen::element(-1, 0, 3, 20);
      return repeat(any_expression(depth - 1, rules), least, more < 0 ? more : least + more);
    }
    default:
      return reference(*rc::gen::inRange(0, rules));
  }
}

TEST(TokenGrammar, AllowsExactlyTheTokensThatGoOn) {
  EXPECT_TRUE(rc::check([] {
    RuleSet rules;
    const int count = *rc::gen::inRange(1, 4);
    for (int i = 0; i < count; ++i) {
      rules.declare(std::to_string(i));
    }
    for (ExpressionPtr& body : rules.bodies) {
      body = any_expression(3, count);
    }
    Grammar grammar;
    try {
      grammar = compile(rules);
    } catch (const Error&) {
      RC_DISCARD("left-recursive, or without texts");
    }
    std::vector<std::string> tokens{""};
    for (int i = *rc::gen::inRange(5, 80); i > 0; --i) {
      tokens.push_back(*any_text(6));
    }
    for (int i = *rc::gen::inRange(0, 6); i > 0; --i) {  // long tokens, for all layers
      tokens.emplace_back(static_cast<std::size_t>(*rc::gen::inRange(6, 20)), 'a');
    }
    for (const char* one : {"a", "b", "c", "\"", ",", "\xC3", "\xA9", "1", "\\"}) {
      tokens.emplace_back(one);
    }
    TokenGrammar fast(rules, std::make_shared<const Vocabulary>(tokens),
                      *rc::gen::element(0.0, 1.0));
    testing::SlowMatcher slow(grammar);
    auto state = fast.start();
    for (int step = 0; step < 12; ++step) {
      TokenMask bits((tokens.size() + 63) / 64);
      const std::vector<std::int32_t> ends{0};
      fast.mask(state, ends, bits);
      const auto may_come = [&](std::size_t token) {
        return (bits[token / 64] >> (token % 64) & 1) != 0;
      };
      RC_ASSERT(may_come(0) == slow.ends());
      std::vector<std::int32_t> allowed;
      for (std::size_t token = 1; token < tokens.size(); ++token) {
        testing::SlowMatcher next = slow;
        const bool goes_on = !tokens[token].empty() && next.push(tokens[token]);
        RC_ASSERT(may_come(token) == goes_on);
        if (goes_on) {
          allowed.push_back(static_cast<std::int32_t>(token));
        }
      }
      if (allowed.empty()) {
        RC_ASSERT(slow.ends());  // otherwise a dead end: every byte is a token
        break;
      }
      const auto token = *rc::gen::elementOf(allowed);
      slow.push(tokens[static_cast<std::size_t>(token)]);
      state = fast.advance(state, token);
      RC_ASSERT(state != TokenGrammar::kDead);
    }
  }));
}

// The number of walks over a vocabulary's tokens for all masks of a grammar.
std::size_t walks(const RuleSet& rules, std::vector<std::string> tokens) {
  const Grammar grammar = compile(rules);
  Automaton automaton(grammar);
  const Vocabulary vocabulary(std::move(tokens));
  TokenMasks masks(automaton, vocabulary);
  for (auto state = automaton.start(); state != Automaton::kDead;
       state = automaton.step(state, 'a')) {
    (void)masks.mask(state);
  }
  return masks.parts();
}

TEST(TokenGrammar, PlacesFarFromABoundShareWalks) {
  const std::vector<std::string> tokens{"a", "b", "aaaaaa", std::string(40, 'a')};
  const auto counted = [](int least, int most) {
    RuleSet rules;
    rules.add("root", repeat(characters({{'a', 'z'}}), least, most));
    return rules;
  };
  const auto automaton = [](int least, int most) {
    RuleSet rules;
    rules.add("root", regular(Regular::of(*repeat(characters({{'a', 'z'}}), least, most)),
                              Spelling::plain));
    return rules;
  };
  const std::size_t few = walks(counted(200, 500), tokens);
  EXPECT_EQ(walks(counted(1200, 2500), tokens), few);
  EXPECT_LT(few, 400U);
  EXPECT_LE(walks(automaton(200, 500), tokens), few);
}

TEST(TokenGrammar, StringsOfDifferentLengthsShareWalks) {
  const std::vector<std::string> tokens{"a", "aaaaaa", std::string(20, 'a'), "\"", "a\"", "b"};
  const auto strings = [](const std::vector<int>& most) {
    nlohmann::ordered_json any_of;
    for (const int length : most) {
      any_of.push_back({{"type", "string"}, {"maxLength", length}});
    }
    return json_schema_rules({{"type", "array"}, {"prefixItems", any_of}});
  };
  const auto parts = [&](const std::vector<int>& most) {
    const Grammar grammar = compile(strings(most));
    Automaton automaton(grammar);
    std::vector<std::string> all = tokens;
    all.insert(all.end(), {"[", "]", ","});
    const Vocabulary vocabulary(all);
    TokenMasks masks(automaton, vocabulary);
    masks.prepare(100.0);
    return masks.parts();
  };
  EXPECT_LT(parts({100, 90, 80, 70, 60}), parts({100}) + 100);
}

TEST(TokenGrammar, StacksDoNotGrowWhereARuleEndsWithACall) {
  const RuleSet rules = parse_grammar("root ::= \"a\" root | \"b\"");
  const auto vocabulary = std::make_shared<const Vocabulary>(std::vector<std::string>{"a", "b"});
  TokenGrammar grammar(rules, vocabulary, 0.0);
  auto state = grammar.start();
  for (int i = 0; i < 1000; ++i) {
    state = grammar.advance(state, 0);
  }
  EXPECT_LT(grammar.learnt_bytes(), 20U << 10);
  EXPECT_TRUE(grammar.ends(grammar.advance(state, 1)));
}

// A vocabulary of a usual size, of which a grammar needs few tokens.
std::shared_ptr<const Vocabulary> large_vocabulary() {
  std::vector<std::string> tokens(150'000);
  for (const char* byte : {"{", "}", "\"", ":", ",", " ", "a", "b", "1"}) {
    tokens.emplace_back(byte);
  }
  return std::make_shared<const Vocabulary>(std::move(tokens));
}

TEST(TokenGrammar, FewTokensCostNoWholeMask) {
  const TokenGrammar grammar(
      json_schema_rules(
          {{"type", "object"},
           {"properties", {{"a", {{"type", "string"}}}, {"b", {{"type", "number"}}}}}}),
      large_vocabulary(), 100.0);
  EXPECT_LT(grammar.learnt_bytes(), std::size_t{256} << 10);
  EXPECT_LT(grammar.compiled_bytes(), std::size_t{256} << 10);
}

TEST(TokenGrammar, FinishedMasksAreDroppedBeyondALimit) {
  TokenGrammar grammar(parse_grammar("root ::= \"a\"{2000}"), large_vocabulary(), 0.0);
  constexpr std::int32_t kA = 150'006;
  TokenMask bits(150'009 / 64 + 1);
  auto state = grammar.start();
  for (int i = 0; i < 2000; ++i) {
    grammar.mask(state, {}, bits);
    ASSERT_NE(bits[kA / 64] >> (kA % 64) & 1, 0U) << i;
    state = grammar.advance(state, kA);
  }
  EXPECT_TRUE(grammar.ends(state));
  EXPECT_LT(grammar.learnt_bytes(), TokenMasks::kMostMaskBytes + (std::size_t{1} << 20));
}

TEST(TokenGrammar, WhatIsNoTokenOfTheTextEndsIt) {
  const auto vocabulary =
      std::make_shared<const Vocabulary>(std::vector<std::string>{"{", "", "x"});
  TokenGrammar grammar(json_object_rules(), vocabulary, 0.0);
  EXPECT_EQ(grammar.advance(grammar.start(), 1), TokenGrammar::kDead);
  EXPECT_EQ(grammar.advance(grammar.start(), 2), TokenGrammar::kDead);
  TokenMask bits{~std::uint64_t{0}};
  grammar.mask(TokenGrammar::kDead, {}, bits);
  EXPECT_EQ(bits.front(), 0U);
}

}  // namespace
}  // namespace winnow::grammar
