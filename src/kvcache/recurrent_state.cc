#include "kvcache/recurrent_state.h"

#include <algorithm>
#include <cassert>

namespace winnow::kvcache {

StatePool::Memory StatePool::allocate() {
  Memory memory(new std::vector<float>(shape_.size(), 0.0F), [this](std::vector<float>* floats) {
    delete floats;
    --live_;
  });
  ++live_;
  return memory;
}

void RecurrentState::own() {
  if (needs_memory()) {
    StatePool::Memory own = pool_->allocate();
    if (memory_) {
      std::ranges::copy(*memory_, own->begin());
    }
    memory_ = std::move(own);
  }
}

std::span<float> RecurrentState::layer(int index) {
  const StateShape& shape = pool_->shape();
  assert(index >= 0 && index < shape.layers);
  own();
  return std::span(*memory_).subspan(
      static_cast<std::size_t>(index) * static_cast<std::size_t>(shape.floats),
      static_cast<std::size_t>(shape.floats));
}

std::span<const float> RecurrentState::values() const {
  return memory_ ? std::span<const float>(*memory_) : std::span<const float>();
}

void RecurrentState::restore(std::span<const float> values) {
  assert(values.size() == pool_->shape().size());
  if (!values.empty()) {
    own();
    std::ranges::copy(values, memory_->begin());
  }
}

}  // namespace winnow::kvcache
