// Which tokens each sequence has seen, for the repetition penalty on a device.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/cuda/device.h"

namespace winnow::model::cuda {

/// A bit per token of the vocabulary for those sequences that need them.
class SeenTokens {
 public:
  explicit SeenTokens(int vocab) : words_(static_cast<std::size_t>(vocab + 31) / 32) {}

  /// The bits of the sequence in `slot`, which is about to sample after `history`: all but the last
  /// token are marked; that one is left to who samples. Histories of a slot only grow until
  /// forget().
  std::uint32_t* mark(int slot, std::span<const std::int32_t> history,
                      const winnow::cuda::Stream& stream);
  /// The slot's next sequence is another one.
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
