// Answers that are JSON objects, whatever the model would rather say.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/token_constraint.h"
#include "server/openai/json_text.h"
#include "tokenizer/tokenizer.h"

namespace winnow::server {

/// The bytes of all tokens of a vocabulary, and which tokens end an answer.
struct TokenTexts {
  TokenTexts(const Tokenizer& tokenizer, int vocab, std::vector<std::int32_t> end_tokens);

  std::vector<std::string> bytes;  // "" for special tokens and for ids that are no token's
  std::vector<std::int32_t> end_tokens;
};

/// Only tokens that go on with a JSON object are left; when it is complete, only those that end the
/// answer.
class JsonConstraint : public engine::TokenConstraint {
 public:
  explicit JsonConstraint(std::shared_ptr<const TokenTexts> texts) : texts_(std::move(texts)) {}

  [[nodiscard]] std::unique_ptr<engine::TokenConstraint> fork() const override {
    return std::make_unique<JsonConstraint>(*this);
  }
  void mask(std::span<float> logits) const override;
  void accept(std::int32_t token) override;

 private:
  std::shared_ptr<const TokenTexts> texts_;
  JsonText text_;
};

}  // namespace winnow::server
