// What recurrent layers keep of a sequence: so many numbers, however long it is.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace winnow::kvcache {

struct StateShape {
  int layers = 0;  // that are recurrent
  int floats = 0;  // of each of them

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
  /// All zeros. The pool must outlive it.
  Memory allocate();

 private:
  StateShape shape_;
  std::size_t live_ = 0;
};

/// One sequence's state, all zeros at first. A copy shares its memory until one of the two is
/// written. One thread at a time.
class RecurrentState {
 public:
  explicit RecurrentState(StatePool& pool) : pool_(&pool) {}

  /// A layer's part, to be read and written.
  std::span<float> layer(int index);
  /// That of all layers; empty before the first token.
  [[nodiscard]] std::span<const float> values() const;
  /// The state becomes `values`, of all layers.
  void restore(std::span<const float> values);

  /// Bytes held, shared ones too.
  [[nodiscard]] std::size_t bytes() const { return memory_ ? pool_->shape().bytes() : 0; }
  /// Whether layer() takes memory.
  [[nodiscard]] bool needs_memory() const {
    return pool_->shape().size() > 0 && memory_.use_count() != 1;
  }

 private:
  void own();

  StatePool* pool_;
  StatePool::Memory memory_;
};

}  // namespace winnow::kvcache
