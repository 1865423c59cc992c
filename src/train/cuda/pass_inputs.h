// The inputs that a captured pass reads anew each time: its batch, the seed of its noise, the
// losses of decisions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/cuda/device.h"
#include "ops/cuda/training/training_decisions.h"
#include "train/batch.h"
#include "train/decisions.h"

namespace winnow::train::cuda {

/// Inputs at the same device address in every pass. The host memory stays unchanged until the
/// update ends, so no copy has to be waited for.
class PassInputs {
 public:
  /// `decisions`: of all layers. `chunk`: the model's (ModelSpec::chunk).
  PassInputs(std::size_t tokens, std::size_t decisions, int chunk);

  /// The device must have finished all earlier copies.
  void begin_update() { used_ = 0; }
  /// Copies the next pass's inputs. `batch` has exactly `tokens` tokens.
  void take(const Batch& batch, const DecisionPass& pass, cudaStream_t stream);
  /// Copies the losses of that pass's layers.
  void take(std::span<const DecisionLoss> losses, cudaStream_t stream);
  /// Sets an empty batch.
  void clear(cudaStream_t stream);

  // In device memory, [T] each:
  [[nodiscard]] const std::int32_t* tokens() const { return column<std::int32_t>(kTokens); }
  [[nodiscard]] const std::int32_t* targets() const { return column<std::int32_t>(kTargets); }
  [[nodiscard]] const float* weights() const { return column<float>(kWeights); }
  [[nodiscard]] const std::int32_t* first_key() const { return column<std::int32_t>(kFirstKeys); }
  [[nodiscard]] const std::int32_t* chunk_key() const { return column<std::int32_t>(kChunkKeys); }
  [[nodiscard]] const std::int32_t* positions() const { return column<std::int32_t>(kPositions); }
  /// The factor on a borrowed channel in attention.
  [[nodiscard]] const float* channel_factor() const { return &values_.data()->channel_factor; }
  [[nodiscard]] const std::uint64_t* noise() const { return &values_.data()->noise; }
  /// [layers, decisions]
  [[nodiscard]] const ops::cuda::DecisionFactors* losses() const { return losses_.data(); }

 private:
  // Arrays of one 32-bit word per token, one after another.
  enum Column : std::size_t {
    kTokens,
    kTargets,
    kWeights,
    kFirstKeys,
    kChunkKeys,
    kPositions,
    kColumns
  };

  struct Values {
    std::uint64_t noise = 0;
    float channel_factor = 0.0F;
  };
  struct HostInputs {
    HostInputs(std::size_t tokens, std::size_t decisions)
        : batch(kColumns * tokens), values(1), losses(decisions) {}
    winnow::cuda::PinnedBuffer<std::int32_t> batch;
    winnow::cuda::PinnedBuffer<Values> values;
    winnow::cuda::PinnedBuffer<ops::cuda::DecisionFactors> losses;
  };

  template <class T>
  [[nodiscard]] const T* column(Column which) const {
    return reinterpret_cast<const T*>(batch_.data() + which * tokens_);
  }

  std::size_t tokens_;
  int chunk_;
  winnow::cuda::DeviceBuffer<std::int32_t> batch_;  // [kColumns, T]
  winnow::cuda::DeviceBuffer<Values> values_;       // one
  winnow::cuda::DeviceBuffer<ops::cuda::DecisionFactors> losses_;
  std::vector<HostInputs> host_;  // one per pass of the update
  std::size_t used_ = 0;
};

}  // namespace winnow::train::cuda
