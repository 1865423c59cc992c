// One of a request's answers as it is written: text that is certain, and what is known of its
// tokens.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"
#include "engine/stop_matcher.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/tokenizer.h"
#include "winnow/sampling.h"

namespace winnow::server {

struct ScoredToken {
  std::int32_t token = 0;
  std::optional<float> logprob;  // the first token of a prompt has none
  std::vector<TokenLogprob> alternatives;
  std::size_t offset = 0;  // characters of text before it
};

/// What became certain with a token, or a few.
struct Piece {
  std::string text;
  std::vector<ScoredToken> tokens;  // none unless they are asked for
  [[nodiscard]] bool empty() const { return text.empty() && tokens.empty(); }
  void append(Piece other) {
    text += other.text;
    std::ranges::move(other.tokens, std::back_inserter(tokens));
  }
};

class Choice {
 public:
  /// `tokenizer` must outlive this. `scored`: tokens are reported, too.
  Choice(const Tokenizer& tokenizer, const std::vector<std::string>& stops, bool scored)
      : tokenizer_(&tokenizer), decoder_(tokenizer), matcher_(stops), scored_(scored) {}

  /// The text of the prompt stands before that of the answer (echo).
  Piece echo(std::string_view prompt);
  /// A token of the prompt, whose text was echoed.
  void echo_token(std::int32_t token, std::optional<float> logprob,
                  std::vector<TokenLogprob> alternatives);
  /// A token of the answer, or its end.
  Piece accept(const engine::TokenEvent& event);

  [[nodiscard]] engine::FinishReason finish() const { return finish_; }
  [[nodiscard]] bool ended() const { return finish_ != engine::FinishReason::none; }
  /// A stop string ended it; the engine may not know.
  [[nodiscard]] bool stopped() const { return matcher_.stopped(); }
  [[nodiscard]] int generated() const { return generated_; }

 private:
  [[nodiscard]] Piece piece(std::string text);

  const Tokenizer* tokenizer_;
  StreamDecoder decoder_;
  engine::StopMatcher matcher_;
  bool scored_;
  engine::FinishReason finish_ = engine::FinishReason::none;
  int generated_ = 0;
  std::size_t decoded_ = 0;  // characters that the decoder has given
  std::size_t emitted_ = 0;  // of those, certain
  std::size_t echoed_ = 0;   // characters of the prompt's tokens so far
  std::vector<ScoredToken> held_;
};

/// Characters (code points) of a valid UTF-8 text.
std::size_t characters(std::string_view text);

}  // namespace winnow::server
