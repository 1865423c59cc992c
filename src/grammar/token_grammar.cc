#include "grammar/token_grammar.h"

#include <algorithm>
#include <utility>

namespace winnow::grammar {

TokenGrammar::TokenGrammar(const RuleSet& rules, std::shared_ptr<const Vocabulary> vocabulary,
                           double prepare_seconds)
    : TokenGrammar(std::make_shared<const Grammar>(compile(rules)), std::move(vocabulary),
                   prepare_seconds) {}

TokenGrammar::TokenGrammar(std::shared_ptr<const Grammar> grammar,
                           std::shared_ptr<const Vocabulary> vocabulary, double prepare_seconds)
    : vocabulary_(std::move(vocabulary)),
      grammar_(std::move(grammar)),
      compiled_bytes_(bytes_of(*grammar_)),
      automaton_(*grammar_),
      masks_(automaton_, *vocabulary_) {
  masks_.prepare(prepare_seconds);
  count_learnt();
}

bool TokenGrammar::ends(State state) const {
  const std::lock_guard lock(mutex_);
  return state != kDead && automaton_.ends(state);
}

TokenGrammar::State TokenGrammar::advance(State state, std::int32_t token) {
  const std::lock_guard lock(mutex_);
  const std::string& bytes = vocabulary_->bytes(token);
  if (bytes.empty()) {
    return kDead;
  }
  for (const char byte : bytes) {
    state = state == kDead ? kDead : automaton_.step(state, static_cast<std::uint8_t>(byte));
  }
  count_learnt();
  return state;
}

void TokenGrammar::mask(State state, std::span<const std::int32_t> end_tokens,
                        std::span<std::uint64_t> bits) {
  const std::lock_guard lock(mutex_);
  if (state == kDead) {
    std::ranges::fill(bits, 0);
    return;
  }
  std::ranges::copy(masks_.mask(state), bits.begin());
  count_learnt();
  if (automaton_.ends(state)) {
    for (const std::int32_t token : end_tokens) {
      bits[static_cast<std::size_t>(token) / 64] |= std::uint64_t{1} << (token % 64);
    }
  }
}

}  // namespace winnow::grammar
