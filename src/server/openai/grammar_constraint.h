// Constrained decoding: answers that follow a grammar.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/token_constraint.h"
#include "grammar/token_grammar.h"
#include "server/openai/answer_format.h"
#include "tokenizer/tokenizer.h"

namespace winnow::server {

/// Allows only tokens that continue a text of the grammar; where the text may end, also tokens that
/// end the answer.
class GrammarConstraint : public engine::TokenConstraint {
 public:
  GrammarConstraint(std::shared_ptr<grammar::TokenGrammar> grammar,
                    std::vector<std::int32_t> end_tokens)
      : grammar_(std::move(grammar)),
        end_tokens_(std::move(end_tokens)),
        state_(grammar_->start()) {}

  [[nodiscard]] std::unique_ptr<engine::TokenConstraint> fork() const override {
    return std::make_unique<GrammarConstraint>(*this);
  }
  void allow(std::span<std::uint64_t> allowed) const override {
    grammar_->mask(state_, end_tokens_, allowed);
  }
  void accept(std::int32_t token) override { state_ = grammar_->advance(state_, token); }

 private:
  std::shared_ptr<grammar::TokenGrammar> grammar_;
  std::vector<std::int32_t> end_tokens_;
  grammar::TokenGrammar::State state_;
};

/// What a GrammarCache may keep and take.
struct GrammarLimits {
  /// Of all grammars, with what they learnt. Beyond it the least recently used ones go, but never
  /// the last one asked for.
  std::size_t bytes = std::size_t{1} << 30;
  /// Of one grammar's states and masks. Beyond it they are learnt anew from its next request on.
  std::size_t learnt_bytes = std::size_t{64} << 20;
  /// Of grammars and refusals.
  std::size_t entries = 1000;
  /// For computing masks in advance: a new grammar's first request waits so long, and so does one
  /// from which it is learnt anew.
  double prepare_seconds = 0.08;
};

/// Recently used grammars, and the messages of those that were refused. May be used from many
/// threads: those that ask for the same new grammar wait while one compiles it.
class GrammarCache {
 public:
  /// `tokenizer` must outlive this; `tokens`: in the model's vocabulary.
  GrammarCache(const Tokenizer& tokenizer, int tokens, const GrammarLimits& limits = {})
      : tokenizer_(tokenizer), tokens_(tokens), limits_(limits) {}

  /// Special tokens that keep their text, while others have none. Call before the first find().
  void keep_text_of(std::vector<std::int32_t> marks) { marks_ = std::move(marks); }
  /// The grammar of a format (not plain text), after `header`. Throws ApiError that names what
  /// cannot be enforced.
  std::shared_ptr<grammar::TokenGrammar> find(const AnswerFormat& format, std::string_view header);
  /// A grammar whose rules are made if `key` is not cached; errors name the field `param`.
  std::shared_ptr<grammar::TokenGrammar> find(std::string key, const std::string& param,
                                              const std::function<grammar::RuleSet()>& make);
  /// The memory of all that is kept.
  [[nodiscard]] std::size_t bytes() const;

 private:
  struct Entry {
    explicit Entry(std::string text) : key(std::move(text)) {}
    [[nodiscard]] std::size_t bytes() const;

    const std::string key;
    std::mutex making;  // held while the members below are made
    // Written with `making` and the cache's mutex_ held, read with one of them. Both are empty at
    // first.
    std::shared_ptr<grammar::TokenGrammar> grammar;
    std::string refusal;
    std::size_t prepared_bytes = 0;  // of its states and masks when it was new; with `making`
  };
  using Entries = std::list<std::shared_ptr<Entry>>;

  std::shared_ptr<Entry> entry(std::string key);
  void fill(Entry& entry, const std::function<grammar::RuleSet()>& make);
  void forget_what_is_too_much(Entry& entry);
  void make_room();
  std::shared_ptr<const grammar::Vocabulary> vocabulary();

  const Tokenizer& tokenizer_;
  int tokens_;
  GrammarLimits limits_;
  std::vector<std::int32_t> marks_;
  std::once_flag vocabulary_made_;
  std::shared_ptr<const grammar::Vocabulary> vocabulary_;  // made for the first format
  mutable std::mutex mutex_;                               // of entries_
  Entries entries_;                                        // most recently used first
};

}  // namespace winnow::server
