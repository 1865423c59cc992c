#include "eval/suite/sessions.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "base/error.h"
#include "engine/state_file.h"
#include "eval/forcing.h"

namespace winnow::eval {
namespace {

using TokenSpan = std::span<const std::int32_t>;

constexpr int kSequences = 2;  // a fork and its origin

engine::EngineConfig for_sessions(engine::EngineConfig config) {
  config.max_sequences = kSequences;
  return config;
}

// One cache in which sequences are read and answered, one at a time.
class Sessions {
 public:
  Sessions(const engine::LoadedModel& model, kvcache::SequenceLimits limits)
      : model_(model),
        config_(for_sessions(model.engine)),
        limits_(limits),
        runner_(model.backend->make_runner(
            config_, most_tokens(config_.cache, kSequences, limits.total_tokens))),
        kind_("session", model.cache_shape(), config_, limits) {}

  [[nodiscard]] std::unique_ptr<engine::SequenceState> open() { return runner_->open(limits_); }

  // Returns the most likely next token.
  std::int32_t read(engine::SequenceState& sequence, TokenSpan tokens) {
    const auto chunk = static_cast<std::size_t>(config_.step_tokens);
    std::int32_t next = 0;
    for (std::size_t first = 0; first < tokens.size(); first += chunk) {
      const TokenSpan piece = tokens.subspan(first, std::min(chunk, tokens.size() - first));
      require(runner_->has_room(runner_->need(sequence, static_cast<int>(piece.size()))), kNoRoom);
      const engine::SequenceShare share{&sequence, piece, 1, {}};
      runner_->forward(std::span(&share, 1), {}, std::span(&next, 1));
    }
    return next;
  }

  // `next` is the first token; ends after an end-of-text token.
  std::vector<std::int32_t> answer(engine::SequenceState& sequence, std::int32_t next,
                                   int max_tokens) {
    std::vector<std::int32_t> tokens{next};
    const auto& ends = model_.spec().eos_tokens;
    while (static_cast<int>(tokens.size()) < max_tokens &&
           std::ranges::find(ends, tokens.back()) == ends.end()) {
      const std::int32_t last = tokens.back();
      tokens.push_back(read(sequence, TokenSpan(&last, 1)));
    }
    return tokens;
  }

  // Writes the sequence as a state file, and restores it from there.
  std::unique_ptr<engine::SequenceState> saved_and_restored(
      std::unique_ptr<engine::SequenceState> sequence, TokenSpan tokens) {
    const std::string image =
        engine::state_image(kind_, {{tokens.begin(), tokens.end()}, sequence->save()});
    sequence.reset();
    const engine::SavedState state =
        engine::parse_state(std::as_bytes(std::span(image)), "session", kind_);
    auto restored = runner_->restore(limits_, state.cache);
    require(restored != nullptr, kNoRoom);
    return restored;
  }

  static std::unique_ptr<engine::SequenceState> fork(const engine::SequenceState& sequence) {
    auto fork = sequence.fork();
    require(fork != nullptr, kNoRoom);
    return fork;
  }

 private:
  static constexpr const char* kNoRoom =
      "the cache has no room for a session and its fork: allow it more memory with --kv-gib";

  const engine::LoadedModel& model_;
  engine::EngineConfig config_;
  kvcache::SequenceLimits limits_;
  std::unique_ptr<engine::Runner> runner_;
  engine::StateKind kind_;
};

}  // namespace

SessionAnswers answer_in_sessions(const engine::LoadedModel& model, TokenSpan prompt,
                                  std::span<const std::size_t> turn_ends, int max_tokens) {
  require(!turn_ends.empty() && turn_ends.back() == prompt.size(),
          "the last turn does not end with the prompt");
  const auto length = static_cast<int>(prompt.size());
  Sessions sessions(model, {length, length + max_tokens});
  const std::size_t forked_after = turn_ends.size() / 2;
  SessionAnswers answers;
  for (auto* const way : {&answers.straight, &answers.resumed, &answers.forked}) {
    auto sequence = sessions.open();
    std::size_t begin = 0;
    std::int32_t next = 0;
    for (std::size_t turn = 0; turn < turn_ends.size(); ++turn) {
      const std::size_t end = turn_ends[turn];
      if (way == &answers.forked && turn == forked_after) {
        auto fork = sessions.fork(*sequence);
        sessions.read(*sequence, prompt.first(end - begin));
        sequence = std::move(fork);
      }
      next = sessions.read(*sequence, prompt.subspan(begin, end - begin));
      begin = end;
      if (way == &answers.resumed) {
        sequence = sessions.saved_and_restored(std::move(sequence), prompt.first(end));
      }
    }
    *way = sessions.answer(*sequence, next, max_tokens);
  }
  return answers;
}

}  // namespace winnow::eval
