// Collects the engine's token events into the texts of a request's samples.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "engine/request.h"
#include "engine/stop_matcher.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/tokenizer.h"
#include "winnow/llm.h"

namespace winnow::engine {

/// The token of an event with log-probabilities.
ScoredToken scored_token(const TokenEvent& event);

class Collector {
 public:
  /// `tokenizer` may be null: samples then have no text. It and `on_text` must outlive this.
  Collector(const Tokenizer* tokenizer, const GenerateOptions& options,
            const TextCallback& on_text);

  void accept(const TokenEvent& event);
  /// Whether every sample has ended. The engine may not know of a stop string yet.
  [[nodiscard]] bool complete() const { return open_ == 0; }
  [[nodiscard]] bool ended(int sample) const {
    return streams_[static_cast<std::size_t>(sample)].ended;
  }
  [[nodiscard]] int generated() const { return generated_; }
  std::vector<Sample> take() { return std::move(samples_); }

 private:
  struct Stream {
    std::optional<StreamDecoder> decoder;
    StopMatcher matcher;
    bool ended = false;
  };

  void emit(int sample, std::string_view text);
  void end(int sample, FinishReason reason);

  const TextCallback* on_text_;
  bool scored_;
  std::vector<Stream> streams_;
  std::vector<Sample> samples_;
  int open_;
  int generated_ = 0;
};

}  // namespace winnow::engine
