#include "grammar/grammar_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "grammar_testing.h"

namespace winnow::grammar {
namespace {

using testing::accepts;
using ::testing::HasSubstr;

std::string error_of(const char* text) {
  try {
    compile(parse_grammar(text));
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(GrammarText, Gbnf) {
  const RuleSet rules = parse_grammar(R"G(
    # arithmetic
    root ::= expr "\n"
    expr ::= term ([-+*/] term)*
      | "neg" expr        # a rule goes on in the next line
    term ::= num | "(" ws expr ws ")"
    num  ::= [0-9]{1,3} ("." [0-9]+)?
    ws   ::= " "?
  )G");
  EXPECT_TRUE(accepts(rules, "1+2*(3.5-4)\n"));
  EXPECT_TRUE(accepts(rules, "neg( 12 )\n"));
  EXPECT_FALSE(accepts(rules, "1+2"));
  EXPECT_FALSE(accepts(rules, "1234\n"));
  EXPECT_TRUE(accepts(parse_grammar("root ::= [^a-c\\n] \"\\u00e9\\x41\" .*"), "déAx\n"));
  EXPECT_FALSE(accepts(parse_grammar("root ::= [^a-c] \"x\""), "ax"));
  EXPECT_TRUE(accepts(parse_grammar("root ::= \"yes\" | \"no\""), "no"));
  EXPECT_TRUE(accepts(parse_grammar("root ::= (\"a\"\n| \"b\"){2}"), "ab"));
}

TEST(GrammarText, Lark) {
  const RuleSet rules = parse_grammar(R"G(
    // sums
    start: sum "."
    ?sum: product
        | sum "+" product -> add
    product: atom ("*" atom)*
    atom: NUMBER | "(" sum ")" | "x"i | [SIGN] "pi"
    SIGN: "+" | "-"
    %import common.INT -> NUMBER
  )G");
  EXPECT_TRUE(accepts(rules, "1+2*(3+X)."));
  EXPECT_TRUE(accepts(rules, "-pi+pi."));
  EXPECT_FALSE(accepts(rules, "1+."));
  EXPECT_TRUE(accepts(parse_grammar("start: /[a-z]\\/+/"), "a//"));
  EXPECT_TRUE(accepts(parse_grammar("start: (\"a\"..\"f\") ~ 2..3"), "abc"));
  EXPECT_FALSE(accepts(parse_grammar("start: (\"a\"..\"f\") ~ 2..3"), "a"));
}

TEST(GrammarText, NamesWhatIsWrong) {
  EXPECT_THAT(error_of("root ::= a"), HasSubstr("no rule a"));
  EXPECT_THAT(error_of("a ::= \"b\""), HasSubstr("no rule root"));
  EXPECT_THAT(error_of("root ::= \"b"), HasSubstr("ends too soon"));
  EXPECT_THAT(error_of("root ::= \"a\"\nroot ::= \"b\""), HasSubstr("line 2: rule root is there"));
  EXPECT_THAT(error_of("root ::= (\"a\""), HasSubstr("expected )"));
  EXPECT_THAT(error_of("root ::= <[5]>"), HasSubstr("tokens are not supported"));
  EXPECT_THAT(error_of("root ::= a \"x\" | \"y\"\na ::= root"), HasSubstr("left-recursive"));
  EXPECT_THAT(error_of("root ::= \"a\" root"), HasSubstr("no text fits"));
  EXPECT_THAT(error_of("start: a{b}"), HasSubstr("expected"));
  EXPECT_THAT(error_of("start: \"a\"\n%ignore \" \""), HasSubstr("%ignore is not supported"));
  EXPECT_THAT(error_of("start: /a/i"), HasSubstr("flags"));
  EXPECT_THAT(error_of(""), HasSubstr("no rule start"));
}

// Done at once only if lines are not counted for every token.
TEST(GrammarText, LongGrammars) {
  constexpr int kRules = 20'000;
  std::string gbnf = "root ::= r0\n";
  std::string lark = "start: r0\n";
  for (int i = 0; i < kRules; ++i) {
    const std::string next = i + 1 < kRules ? " | \"b\" r" + std::to_string(i + 1) : "";
    gbnf += "r" + std::to_string(i) + " ::= \"a\"{1,3}" + next + "\n";
    lark += "r" + std::to_string(i) + ": \"a\" ~ 1..3" + next + "\n";
  }
  EXPECT_GT(std::min(gbnf.size(), lark.size()), std::size_t{600} << 10);
  EXPECT_EQ(parse_grammar(gbnf).bodies.size(), kRules + 1);
  EXPECT_EQ(parse_grammar(lark).bodies.size(), kRules + 1);
  EXPECT_THAT(error_of((gbnf + "r ::= (\"a\"").c_str()), HasSubstr("line 20002: expected )"));
}

TEST(GrammarText, ARuleMayBeginWithItself) {
  const RuleSet rules = parse_grammar("root ::= root \"+\" num | num\nnum ::= [0-9]+");
  EXPECT_TRUE(accepts(rules, "1+22+3"));
  EXPECT_FALSE(accepts(rules, "1+"));
}

}  // namespace
}  // namespace winnow::grammar
