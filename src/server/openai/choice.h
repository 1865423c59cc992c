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
  int rank = 1;            // among all tokens; 1: the most likely
};

/// Output that became final with one or a few tokens.
struct Piece {
  std::string text;
  std::vector<ScoredToken> tokens;  // empty unless requested
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
  bool keep_stop = false;                // the text includes the stop string, or token
  int min_tokens = 0;                    // stop strings are ignored before this many tokens
  bool skip_special = true;              // special tokens have no text,
  std::vector<std::int32_t> marks = {};  // except these
  bool scored = false;                   // tokens are reported as well
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

  /// Puts the prompt's text before the answer's (echo).
  Piece echo(std::string_view prompt);
  /// Reports a token of the prompt, whose text was echoed.
  void echo_token(std::int32_t token, std::optional<float> logprob,
                  std::vector<TokenLogprob> alternatives);
  /// Takes a token of the answer, or its end.
  Piece accept(const engine::TokenEvent& event);

  [[nodiscard]] engine::FinishReason finish() const { return finish_; }
  [[nodiscard]] bool ended() const { return finish_ != engine::FinishReason::none; }
  /// A stop string ended the choice; the engine may not know yet.
  [[nodiscard]] bool stopped() const { return matcher_.stopped(); }
  /// The stop string that ended the choice; "" if none did.
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
  std::size_t decoded_ = 0;  // characters that the decoder has produced
  std::size_t emitted_ = 0;  // of these, final
  std::size_t echoed_ = 0;   // characters of the prompt's tokens so far
  std::vector<ScoredToken> held_;
};

/// Number of characters (code points) in valid UTF-8.
std::size_t characters(std::string_view text);

}  // namespace winnow::server
