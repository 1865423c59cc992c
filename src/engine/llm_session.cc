#include "engine/llm_session.h"

#include "base/error.h"

namespace winnow::engine {

Session::Session(const model::Model& model, const EngineConfig& config,
                 const kvcache::SequenceLimits& limits)
    : model_(&model), cache_(config.cache, model.cache_shape()), sequence_(cache_, limits) {
  context_ = {config.compute, config.deterministic, &workspace_};
}

void Session::feed(std::span<const std::int32_t> tokens, std::span<float> logits,
                   std::span<std::int32_t> visible) {
  const auto& config = model_->config();
  const auto vocab = static_cast<std::size_t>(config.vocab);
  const auto heads = static_cast<std::size_t>(config.layers * config.kv_heads);
  const std::size_t rows = logits.size() / vocab;
  require(cache_.has_pages(sequence_.page_need(static_cast<int>(tokens.size()))),
          "the cache is full after {} tokens: allow it more memory with --kv-gib",
          sequence_.length());
  model::SequenceStep step{&sequence_, tokens, rows, {}};
  if (!visible.empty()) {
    step.visible = {visible.data(), tokens.size(), heads};
  }
  model_->forward(context_, std::span(&step, 1), {logits.data(), rows, vocab});
}

}  // namespace winnow::engine
