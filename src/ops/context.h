// What every op needs besides its operands: scratch memory, precision, ranks.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "base/tensor.h"

namespace winnow::parallel {
class Communicator;
}

namespace winnow::ops {

class AmxPackedWeights;

/// Scratch memory that ops borrow for the duration of one call. It grows to the largest need so
/// far and then allocates no more.
class Workspace {
 public:
  /// A Scope frees at its end everything that was taken inside it; scopes nest.
  class Scope {
   public:
    explicit Scope(Workspace& workspace)
        : workspace_(workspace), block_(workspace.block_), used_(workspace.used_) {}
    ~Scope() {
      workspace_.block_ = block_;
      workspace_.used_ = used_;
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Workspace& workspace_;
    std::size_t block_;
    std::size_t used_;
  };

  /// `count` uninitialised elements, aligned to 64 bytes, valid until the enclosing Scope ends.
  template <class T>
  std::span<T> take(std::size_t count) {
    return {reinterpret_cast<T*>(take_bytes(count * sizeof(T))), count};
  }

  [[nodiscard]] std::size_t bytes() const;

 private:
  std::byte* take_bytes(std::size_t bytes);

  std::vector<Buffer<std::byte>> blocks_;
  std::size_t block_ = 0;  // the block being filled
  std::size_t used_ = 0;   // bytes of it in use
};

/// The precision and reproducibility of an op, and its scratch memory.
struct Context {
  /// f32: products and sums in float. bf16: operands may be rounded if the CPU has instructions for
  /// it, to bf16 (or, with quantised weights, to integers of 16 bits or, many rows on CPUs with
  /// VNNI, 8 bits with a scale per group); sums stay in float.
  DType compute = DType::bf16;
  /// Each row of a result depends on that row's inputs alone, to the last bit, however many rows
  /// share the call (batch-invariant kernels).
  bool deterministic = false;
  Workspace* workspace = nullptr;
  /// Copies of the weights in the layout of the CPU's tiles. Null: the CPU has no tiles, or its
  /// last-level cache has no room for the copies.
  const AmxPackedWeights* tiled = nullptr;
  /// The ranks that share the model's computation; null: this process computes all of it.
  parallel::Communicator* ranks = nullptr;
};

}  // namespace winnow::ops
