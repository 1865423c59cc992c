// The state of recurrent layers: a fixed size for a sequence of any length.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace winnow::kvcache {

struct StateShape {
  int layers = 0;  // recurrent layers
  int floats = 0;  // floats per layer

  /// Floats of all layers.
  [[nodiscard]] std::size_t size() const {
    return static_cast<std::size_t>(layers) * static_cast<std::size_t>(floats);
  }
  [[nodiscard]] std::size_t bytes() const { return size() * sizeof(float); }

  bool operator==(const StateShape&) const = default;
};

/// Counts the memory of all sequences' states.
class StatePool {
 public:
  explicit StatePool(const StateShape& shape) : shape_(shape) {}
  StatePool(const StatePool&) = delete;
  StatePool& operator=(const StatePool&) = delete;

  [[nodiscard]] const StateShape& shape() const { return shape_; }
  /// Bytes of all states.
  [[nodiscard]] std::size_t bytes() const { return live_ * shape_.bytes(); }

  using Memory = std::shared_ptr<std::vector<float>>;
  /// A state of zeros. The pool must outlive it.
  Memory allocate();

 private:
  StateShape shape_;
  std::size_t live_ = 0;
};

/// One sequence's state, at first all zeros. Copies share memory until one of them is written. For
/// one thread at a time.
class RecurrentState {
 public:
  explicit RecurrentState(StatePool& pool) : pool_(&pool) {}

  /// A layer's part, for reading and writing.
  std::span<float> layer(int index);
  /// The values of all layers; empty before the first token.
  [[nodiscard]] std::span<const float> values() const;
  /// Sets the values of all layers.
  void restore(std::span<const float> values);

  /// Bytes held, including shared memory.
  [[nodiscard]] std::size_t bytes() const { return memory_ ? pool_->shape().bytes() : 0; }
  /// Whether layer() would allocate memory.
  [[nodiscard]] bool needs_memory() const {
    return pool_->shape().size() > 0 && memory_.use_count() != 1;
  }

 private:
  void own();

  StatePool* pool_;
  StatePool::Memory memory_;
};

}  // namespace winnow::kvcache
