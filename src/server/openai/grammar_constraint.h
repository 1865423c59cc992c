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

/// Recently used grammars. May be used from many threads.
class GrammarCache {
 public:
  /// `tokenizer` must outlive this; `tokens`: in the model's vocabulary.
  GrammarCache(const Tokenizer& tokenizer, int tokens) : tokenizer_(tokenizer), tokens_(tokens) {}

  /// Special tokens that keep their text, while others have none. Call before the first find().
  void keep_text_of(std::vector<std::int32_t> marks) { marks_ = std::move(marks); }
  /// The grammar of a format (not plain text), after `header`. Throws ApiError that names what
  /// cannot be enforced.
  std::shared_ptr<grammar::TokenGrammar> find(const AnswerFormat& format, std::string_view header);
  /// A grammar whose rules are made if `key` is not cached; errors name the field `param`.
  std::shared_ptr<grammar::TokenGrammar> find(std::string key, const std::string& param,
                                              const std::function<grammar::RuleSet()>& make);

 private:
  using Entry = std::pair<std::string, std::shared_ptr<grammar::TokenGrammar>>;

  std::shared_ptr<const grammar::Vocabulary> vocabulary();

  const Tokenizer& tokenizer_;
  int tokens_;
  std::vector<std::int32_t> marks_;
  std::once_flag vocabulary_made_;
  std::shared_ptr<const grammar::Vocabulary> vocabulary_;  // made for the first format
  std::mutex mutex_;                                       // of entries_
  std::list<Entry> entries_;                               // most recently used first
};

}  // namespace winnow::server
