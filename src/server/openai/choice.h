// One answer of a request while it is generated: final text, and data about its tokens.
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
  int rank = 1;            // among all tokens; 1: the likeliest
};

/// What became certain with a token, or a few.
struct Piece {
  std::string text;
  std::vector<ScoredToken> tokens;  // none unless they are asked for
  std::string thought = {};         // text of the model's reasoning
  [[nodiscard]] bool empty() const { return text.empty() && tokens.empty() && thought.empty(); }
  void append(Piece other) {
    text += other.text;
    thought += other.thought;
    std::ranges::move(other.tokens, std::back_inserter(tokens));
  }
};

struct ChoiceOptions {
  std::vector<std::string> stops = {};
  bool keep_stop = false;                // the stop string, or token, stays in the text
  int min_tokens = 0;                    // before which no stop string is looked for
  bool skip_special = true;              // special tokens have no text,
  std::vector<std::int32_t> marks = {};  // but for these
  bool scored = false;                   // tokens are reported, too
};

class Choice {
 public:
  /// `tokenizer` must outlive this.
  Choice(const Tokenizer& tokenizer, const ChoiceOptions& options)
      : tokenizer_(&tokenizer),
        decoder_(tokenizer, options.skip_special, options.marks),
        matcher_(options.stops, options.keep_stop),
        keep_stop_(options.keep_stop),
        min_tokens_(options.min_tokens),
        scored_(options.scored) {}

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
  /// That stop string; "" when none has ended it.
  [[nodiscard]] const std::string& stop() const { return matcher_.stop(); }
  [[nodiscard]] int generated() const { return generated_; }

 private:
  [[nodiscard]] Piece piece(std::string text);

  const Tokenizer* tokenizer_;
  StreamDecoder decoder_;
  engine::StopMatcher matcher_;
  bool keep_stop_;
  int min_tokens_;
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
