// The tokens that each sequence has seen, for the repetition penalty on a device.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/cuda/device.h"

namespace winnow::model::cuda {

/// A bit per token of the vocabulary, for the sequences that need them.
class SeenTokens {
 public:
  explicit SeenTokens(int vocab) : words_(static_cast<std::size_t>(vocab + 31) / 32) {}

  /// The bits of the sequence in `slot`, which is about to sample after `history`. All tokens but
  /// the last are marked; the sampling kernel marks the last one. Histories of a slot only grow
  /// until forget().
  std::uint32_t* mark(int slot, std::span<const std::int32_t> history,
                      const winnow::cuda::Stream& stream);
  /// Call it before another sequence uses the slot.
  void forget(int slot);

 private:
  struct Bits {
    winnow::cuda::DeviceBuffer<std::uint32_t> words;
    std::size_t marked = 0;  // tokens of the history
  };
  std::size_t words_;
  std::map<int, Bits> bits_;  // by slot
  winnow::cuda::DeviceBuffer<std::int32_t> tokens_;
};

}  // namespace winnow::model::cuda
