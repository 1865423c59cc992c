// A grammar over the tokens of a vocabulary; thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "grammar/automaton.h"
#include "grammar/grammar.h"
#include "grammar/token_masks.h"
#include "grammar/token_trie.h"

namespace winnow::grammar {

/// Its methods may be called from many threads.
class TokenGrammar {
 public:
  using State = Automaton::State;
  static constexpr State kDead = Automaton::kDead;

  /// Throws Error as compile() does. `prepare_seconds`: the time for computing masks in advance.
  TokenGrammar(const RuleSet& rules, std::shared_ptr<const Vocabulary> vocabulary,
               double prepare_seconds);
  /// The same for a grammar that is compiled already.
  TokenGrammar(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const Vocabulary> vocabulary,
               double prepare_seconds);

  [[nodiscard]] const std::shared_ptr<const Grammar>& compiled() const { return grammar_; }

  [[nodiscard]] State start() const { return automaton_.start(); }
  /// Whether the text may end in `state`.
  [[nodiscard]] bool ends(State state) const;
  /// The state after a token; kDead if no text of the grammar continues with it.
  [[nodiscard]] State advance(State state, std::int32_t token);
  /// Writes a bit for every token: whether a text may continue with it. If the text may end, also
  /// sets the bits of `end_tokens`.
  void mask(State state, std::span<const std::int32_t> end_tokens, std::span<std::uint64_t> bits);
  /// The memory of the compiled grammar. Waits for nothing, nor does learnt_bytes().
  [[nodiscard]] std::size_t compiled_bytes() const { return compiled_bytes_; }
  /// The memory of all states and masks, which grows with the texts seen.
  [[nodiscard]] std::size_t learnt_bytes() const { return learnt_bytes_; }

 private:
  void count_learnt() { learnt_bytes_ = automaton_.bytes() + masks_.bytes(); }

  std::shared_ptr<const Vocabulary> vocabulary_;
  std::shared_ptr<const Grammar> grammar_;
  std::size_t compiled_bytes_;
  std::atomic<std::size_t> learnt_bytes_ = 0;
  mutable std::mutex mutex_;  // guards the members below
  Automaton automaton_;
  TokenMasks masks_;
};

}  // namespace winnow::grammar
