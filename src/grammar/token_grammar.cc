#include "grammar/token_grammar.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

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
                        std::span<float> logits) {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  std::vector<float> ends;
  for (const std::int32_t token : end_tokens) {
    ends.push_back(logits[static_cast<std::size_t>(token)]);
  }
  const std::lock_guard lock(mutex_);
  if (state == kDead) {
    std::ranges::fill(logits, kNever);
    return;
  }
  const TokenMask& mask = masks_.mask(state);
  for (std::size_t i = 0; i < mask.size(); ++i) {
    const std::uint64_t word = mask[i];
    const auto part = logits.subspan(i * 64, std::min<std::size_t>(64, logits.size() - i * 64));
    if (word == 0) {
      std::ranges::fill(part, kNever);
    } else if (~word != 0) {
      for (std::size_t bit = 0; bit < part.size(); ++bit) {
        part[bit] = (word >> bit & 1) != 0 ? part[bit] : kNever;
      }
    }
  }
  for (std::size_t i = 0; automaton_.ends(state) && i < ends.size(); ++i) {
    logits[static_cast<std::size_t>(end_tokens[i])] = ends[i];
  }
}

void TokenGrammar::mask_bits(State state, std::span<std::uint64_t> bits) {
  const std::lock_guard lock(mutex_);
  if (state == kDead) {
    std::ranges::fill(bits, 0);
  } else {
    std::ranges::copy(masks_.mask(state), bits.begin());
  }
}

std::size_t TokenGrammar::size() const {
  const std::lock_guard lock(mutex_);
  const std::size_t mask_kib = vocabulary_->size() / 8 / 1024;
  return automaton_.size() + masks_.size() * std::max<std::size_t>(mask_kib, 1);
}

}  // namespace winnow::grammar
