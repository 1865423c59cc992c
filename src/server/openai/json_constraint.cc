#include "server/openai/json_constraint.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace winnow::server {

TokenTexts::TokenTexts(const Tokenizer& tokenizer, int vocab, std::vector<std::int32_t> end_tokens)
    : bytes(static_cast<std::size_t>(vocab)), end_tokens(std::move(end_tokens)) {
  for (std::int32_t token = 0; token < vocab; ++token) {
    if (tokenizer.has_token(token)) {  // vocabularies are padded
      bytes[static_cast<std::size_t>(token)] = tokenizer.token_bytes(token, /*skip_special=*/true);
    }
  }
}

void JsonConstraint::mask(std::span<float> logits) const {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  if (text_.is_complete()) {
    std::vector<std::pair<std::int32_t, float>> ends;
    for (const std::int32_t token : texts_->end_tokens) {
      ends.emplace_back(token, logits[static_cast<std::size_t>(token)]);
    }
    std::ranges::fill(logits, kNever);
    for (const auto& [token, logit] : ends) {
      logits[static_cast<std::size_t>(token)] = logit;
    }
    return;
  }
  std::array<bool, 256> begins{};  // most tokens are out by their first byte
  for (std::size_t byte = 0; byte < begins.size(); ++byte) {
    JsonText text = text_;
    begins[byte] = text.push(static_cast<unsigned char>(byte));
  }
  for (std::size_t token = 0; token < logits.size(); ++token) {
    const std::string& bytes = texts_->bytes[token];
    JsonText text = text_;
    if (bytes.empty() || !begins[static_cast<unsigned char>(bytes.front())] || !text.push(bytes)) {
      logits[token] = kNever;
    }
  }
}

void JsonConstraint::accept(std::int32_t token) {
  text_.push(texts_->bytes[static_cast<std::size_t>(token)]);
}

}  // namespace winnow::server
