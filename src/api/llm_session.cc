#include "api/llm_session.h"

#include "base/error.h"

namespace winnow::engine {
namespace {

EngineConfig of_one(EngineConfig config) {
  config.max_sequences = 1;
  return config;
}

}  // namespace

Session::Session(const Backend& backend, const EngineConfig& config,
                 const kvcache::SequenceLimits& limits)
    : config_(backend.spec()),
      runner_(backend.make_runner(of_one(config), limits.total_tokens)),
      sequence_(runner_->open(limits)) {}

void Session::feed(std::span<const std::int32_t> tokens, std::span<float> logits,
                   std::span<std::int32_t> visible) {
  const auto vocab = static_cast<std::size_t>(config_.vocab);
  const auto heads = static_cast<std::size_t>(config_.cached_heads());
  const std::size_t rows = logits.size() / vocab;
  require(runner_->has_room(runner_->need(*sequence_, static_cast<int>(tokens.size()))),
          "the cache is full after {} tokens: allow it more memory with --kv-gib",
          sequence_->length());
  SequenceShare share{sequence_.get(), tokens, rows, {}};
  if (!visible.empty()) {
    share.visible = {visible.data(), tokens.size(), heads};
  }
  runner_->forward(std::span(&share, 1), {logits.data(), rows, vocab}, {});
}

}  // namespace winnow::engine
