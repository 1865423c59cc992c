// Any text as a JSON Schema, a regular expression or a grammar (the first byte says which): an
// Error of one line, or a grammar from whose beginning every step leads to a text's end.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "checkpoint/json.h"
#include "grammar/automaton.h"
#include "grammar/grammar_text.h"
#include "grammar/json_schema.h"
#include "grammar/regex_parser.h"

namespace {

using winnow::grammar::Automaton;
using winnow::grammar::RuleSet;

constexpr std::size_t kMostBytes = 2000;  // a short text may mean a large grammar
constexpr int kSteps = 200;

RuleSet rules_of(char kind, std::string_view text) {
  RuleSet rules;
  switch (kind) {
    case 's': {
      (void)winnow::parse_json(text, "schema");
      const auto schema = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
      winnow::require(!schema.is_discarded(), "NaN, which parse_json takes, is no schema's");
      return winnow::grammar::json_schema_rules(schema);
    }
    case 'r':
      rules.add("root", winnow::grammar::parse_regex(text, winnow::grammar::RegexMatch::anywhere));
      return rules;
    default:
      return winnow::grammar::parse_grammar(text);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0 || size > kMostBytes) {
    return 0;
  }
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  try {
    const winnow::grammar::Grammar grammar =
        winnow::grammar::compile(rules_of(static_cast<char>(data[0]), text));
    Automaton automaton(grammar);
    Automaton::State state = automaton.start();
    for (int i = 0; i < kSteps && state != Automaton::kDead; ++i) {
      const auto bytes = automaton.distinct_bytes(state);
      Automaton::State next = Automaton::kDead;
      for (std::size_t j = 0; j < bytes.size() && next == Automaton::kDead; ++j) {
        next = automaton.step(state, bytes[(j + static_cast<std::size_t>(i)) % bytes.size()]);
      }
      if (next == Automaton::kDead && !automaton.ends(state) && !automaton.is_full()) {
        std::abort();  // nothing goes on, and the text is not at its end
      }
      state = next;
    }
  } catch (const winnow::Error& error) {
    if (std::string_view(error.what()).empty()) {
      std::abort();
    }
  }
  return 0;
}
