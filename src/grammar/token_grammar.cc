#include "grammar/token_grammar.h"

#include <algorithm>
#include <utility>

namespace winnow::grammar {

TokenGrammar::TokenGrammar(const RuleSet& rules, std::shared_ptr<const Vocabulary> vocabulary,
                           double prepare_seconds)
    : vocabulary_(std::move(vocabulary)),
      grammar_(compile(rules)),
      automaton_(grammar_),
      masks_(automaton_, *vocabulary_) {
  masks_.prepare(prepare_seconds);
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
  if (automaton_.ends(state)) {
    for (const std::int32_t token : end_tokens) {
      bits[static_cast<std::size_t>(token) / 64] |= std::uint64_t{1} << (token % 64);
    }
  }
}

std::size_t TokenGrammar::size() const {
  const std::lock_guard lock(mutex_);
  const std::size_t mask_kib = vocabulary_->size() / 8 / 1024;
  return automaton_.size() + masks_.size() * std::max<std::size_t>(mask_kib, 1);
}

}  // namespace winnow::grammar
