// The vectors of a trained model, and the matrices that compute decisions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "train/cuda/device_tensors.h"
#include "train/cuda/peers.h"
#include "train/cuda_memory/rank_parts.h"

namespace winnow::train::cuda {

/// They are small: every rank has all of them in fp32, and products read decision matrices rounded
/// and padded to padded_decisions() rows.
class VectorWeights {
 public:
  VectorWeights(const model::ModelSpec& spec, const ParameterList& list, const RankParts& parts);

  /// Copies the values that ranks hold.
  void gather(const RankParts& parts, const Peers& peers, const Peers::Arrays<float>& held,
              cudaStream_t stream);

  [[nodiscard]] const float* vector(const Parameter& parameter) const {
    return vectors_.data() + (parameter.offset - first_);
  }
  /// The rounded rows of a decision matrix.
  [[nodiscard]] const bf16* rows(const Parameter& parameter) const {
    return rows_.data() + row_offsets_.at(parameter.offset);
  }

 private:
  std::size_t first_;  // offset of the vectors in the flat arrays
  std::size_t used_;   // elements of a decision matrix without its padding
  winnow::cuda::DeviceBuffer<float> vectors_;
  std::map<std::size_t, std::size_t> row_offsets_;  // by the offset in the flat arrays
  winnow::cuda::DeviceBuffer<bf16> rows_;
};

}  // namespace winnow::train::cuda
