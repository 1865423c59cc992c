#include "server/openai/choice.h"

#include <algorithm>
#include <utility>

namespace winnow::server {

using engine::FinishReason;

std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

Piece Choice::echo(std::string_view prompt) {
  decoded_ = characters(prompt);
  return piece(std::string(prompt));
}

void Choice::echo_token(std::int32_t token, std::optional<float> logprob,
                        std::vector<TokenLogprob> alternatives) {
  if (scored_) {
    held_.push_back({token, logprob, std::move(alternatives), std::min(echoed_, emitted_)});
    echoed_ += characters(tokenizer_->token_bytes(token, /*skip_special=*/true));
  }
}

Piece Choice::accept(const engine::TokenEvent& event) {
  std::string text;
  if (ended()) {
    return {};  // after a stop string, the engine runs on for a moment
  }
  if (event.token >= 0) {
    ++generated_;
    if (scored_) {
      held_.push_back({event.token, event.logprob, event.alternatives, decoded_});
    }
    if (event.finish != FinishReason::stop || keep_stop_) {
      const std::string decoded = decoder_.push_chosen(event.token);
      decoded_ += characters(decoded);
      text = generated_ > min_tokens_ ? matcher_.push(decoded) : decoded;
    }
  }
  if (matcher_.stopped()) {
    finish_ = FinishReason::stop;
  } else if (event.finish != FinishReason::none) {
    text += matcher_.push(decoder_.finish());
    text += matcher_.finish();
    finish_ = matcher_.stopped() ? FinishReason::stop : event.finish;
  }
  return piece(std::move(text));
}

// Tokens go with the text that they begin; those of text removed by a stop string go with it.
Piece Choice::piece(std::string text) {
  emitted_ += characters(text);
  Piece piece{.text = std::move(text), .tokens = {}};
  const bool all = ended() && !stopped();
  const auto certain = std::ranges::find_if(
      held_, [&](const ScoredToken& token) { return !all && token.offset >= emitted_; });
  piece.tokens.assign(std::make_move_iterator(held_.begin()), std::make_move_iterator(certain));
  held_.erase(held_.begin(), certain);
  return piece;
}

}  // namespace winnow::server
