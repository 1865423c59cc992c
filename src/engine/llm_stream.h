// What stands behind a Stream.
#pragma once

#include <memory>
#include <utility>

#include "engine/llm_batch.h"
#include "winnow/llm.h"

namespace winnow {

struct Stream::State {
  State(std::shared_ptr<void> owner, engine::Batch& requests,
        std::shared_ptr<engine::Answer> started)
      : model(std::move(owner)), batch(requests), answer(std::move(started)) {}
  ~State() { batch.cancel(answer); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  std::shared_ptr<void> model;  // keeps it loaded
  engine::Batch& batch;
  std::shared_ptr<engine::Answer> answer;
};

}  // namespace winnow
