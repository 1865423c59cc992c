// The implementation of Stream.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "api/llm_batch.h"
#include "engine/prompt_cache.h"
#include "winnow/llm.h"

namespace winnow {

struct Stream::State {
  State(std::shared_ptr<void> owner, engine::Batch& requests,
        std::shared_ptr<engine::Answer> started, std::optional<engine::PromptCache> file)
      : model(std::move(owner)),
        batch(requests),
        answer(std::move(started)),
        prompt_cache(std::move(file)) {}
  ~State() { batch.cancel(answer); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  std::shared_ptr<void> model;  // keeps it loaded
  engine::Batch& batch;
  std::shared_ptr<engine::Answer> answer;
  std::optional<engine::PromptCache> prompt_cache;
};

}  // namespace winnow
