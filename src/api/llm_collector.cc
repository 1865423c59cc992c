#include "api/llm_collector.h"

#include <string>

namespace winnow::engine {

ScoredToken scored_token(const TokenEvent& event) {
  return {.token = event.token,
          .logprob = event.logprob,
          .rank = event.rank,
          .alternatives = event.alternatives};
}

Collector::Collector(const Tokenizer* tokenizer, const GenerateOptions& options,
                     const TextCallback& on_text)
    : on_text_(&on_text),
      scored_(options.logprobs >= 0),
      samples_(static_cast<std::size_t>(options.samples)),
      open_(options.samples) {
  const StopMatcher matcher(options.stop);
  for (int i = 0; i < options.samples; ++i) {
    streams_.push_back({{}, matcher, false});
    if (tokenizer != nullptr) {
      streams_.back().decoder.emplace(*tokenizer);
    }
  }
}

void Collector::accept(const TokenEvent& event) {
  const auto index = static_cast<std::size_t>(event.sample);
  Stream& stream = streams_[index];
  if (stream.ended) {
    return;  // a stop string ended this sample, others still run
  }
  if (event.token >= 0) {
    ++generated_;
    samples_[index].token_ids.push_back(event.token);
    if (scored_) {
      samples_[index].logprobs.push_back(scored_token(event));
    }
    if (stream.decoder && event.finish != FinishReason::stop) {
      emit(event.sample, stream.matcher.push(stream.decoder->push_chosen(event.token)));
    }
  }
  if (stream.matcher.stopped()) {
    end(event.sample, FinishReason::stop);
  } else if (event.finish != FinishReason::none) {
    if (stream.decoder) {
      emit(event.sample, stream.matcher.push(stream.decoder->finish()));
      emit(event.sample, stream.matcher.finish());
    }
    end(event.sample, event.finish);
  }
}

void Collector::emit(int sample, std::string_view text) {
  if (text.empty()) {
    return;
  }
  samples_[static_cast<std::size_t>(sample)].text += text;
  if (*on_text_) {
    (*on_text_)(sample, text);
  }
}

void Collector::end(int sample, FinishReason reason) {
  streams_[static_cast<std::size_t>(sample)].ended = true;
  samples_[static_cast<std::size_t>(sample)].finish_reason = finish_name(reason);
  --open_;
}

}  // namespace winnow::engine
