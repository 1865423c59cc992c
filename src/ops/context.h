// What every op takes besides its operands.
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

/// Scratch memory that ops borrow for the time of one call. It grows to the largest need seen and
/// then allocates no more.
class Workspace {
 public:
  /// Everything taken inside a Scope is given back at its end; scopes nest.
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
  std::size_t used_ = 0;   // bytes taken of it
};

/// How precisely, how reproducibly, and with which scratch an op works.
struct Context {
  /// f32: products and sums in float. bf16: operands may be rounded where the CPU has instructions
  /// for it, to bf16 (or, beside quantised weights, to 16 bits of a common scale), sums stay in
  /// float.
  DType compute = DType::bf16;
  /// Each row of a result depends on that row's inputs alone, to the last bit, however many rows
  /// share the call (batch-invariant kernels).
  bool deterministic = false;
  Workspace* workspace = nullptr;
  /// Copies of the weights in the order of the CPU's tiles, if it has these, and room for the
  /// copies in its last-level cache.
  const AmxPackedWeights* tiled = nullptr;
  /// The ranks that compute parts of the model beside this one; null: it computes all of it.
  parallel::Communicator* ranks = nullptr;
};

}  // namespace winnow::ops
