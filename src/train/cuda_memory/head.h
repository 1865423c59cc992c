// Sizes of what the head of a model computes on a device.
#pragma once

#include <cstddef>

#include "model/config.h"
#include "train/zero_stage.h"

namespace winnow::train::cuda {

/// Elements of DeviceHead's buffers. Logits exist for one chunk of tokens at a time.
class HeadSizes {
 public:
  /// `distilled`: there is a teacher. `chunk` is the approximate number of a chunk's logits.
  HeadSizes(const model::ModelSpec& spec, std::size_t tokens, bool distilled, std::size_t chunk);
  /// A chunk so large that products fill a device. In stage 3 memory is short.
  static std::size_t chunk_for(ZeroStage stage) {
    return std::size_t{1} << (stage == ZeroStage::everything ? 27U : 28U);
  }
  [[nodiscard]] std::size_t bytes() const;

  int stride;                  // between rows of logits
  int chunk;                   // tokens
  std::size_t stream;          // [T, hidden]
  std::size_t teacher_stream;  // the same; 0: there is no teacher
  std::size_t logits;          // [chunk, stride]
  std::size_t teacher_logits;
};

}  // namespace winnow::train::cuda
