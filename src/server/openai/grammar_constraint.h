// Answers that have a form, whatever the model would rather say.
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

/// Only tokens that go on with a text of the grammar are left; where it may end, also those that
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

/// Grammars of forms that were asked for lately. May be used from many threads.
class GrammarCache {
 public:
  /// `tokenizer` must outlive this; `tokens`: in the model's vocabulary.
  GrammarCache(const Tokenizer& tokenizer, int tokens) : tokenizer_(tokenizer), tokens_(tokens) {}

  /// Special tokens that spell their text, where others have none. Before the first find().
  void keep_text_of(std::vector<std::int32_t> marks) { marks_ = std::move(marks); }
  /// Of a form, any but text, with `header` before it. Throws ApiError that names what cannot be
  /// held to.
  std::shared_ptr<grammar::TokenGrammar> find(const AnswerFormat& format, std::string_view header);
  /// Of rules that are made when `key` is not known yet; errors name the field `param`.
  std::shared_ptr<grammar::TokenGrammar> find(std::string key, const std::string& param,
                                              const std::function<grammar::RuleSet()>& make);

 private:
  using Entry = std::pair<std::string, std::shared_ptr<grammar::TokenGrammar>>;

  std::shared_ptr<const grammar::Vocabulary> vocabulary();

  const Tokenizer& tokenizer_;
  int tokens_;
  std::vector<std::int32_t> marks_;
  std::once_flag vocabulary_made_;
  std::shared_ptr<const grammar::Vocabulary> vocabulary_;  // made when the first form is asked for
  std::mutex mutex_;                                       // of entries_
  std::list<Entry> entries_;                               // the latest first
};

}  // namespace winnow::server
