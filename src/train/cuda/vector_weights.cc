#include "train/cuda/vector_weights.h"

#include "train/cuda/copies.h"
#include "train/cuda/optimizer.h"
#include "train/decisions.h"

namespace winnow::train::cuda {

VectorWeights::VectorWeights(const model::ModelSpec& spec, const ParameterList& list,
                             const RankParts& parts)
    : first_(parts.matrices()),
      used_(decision_count(spec) * static_cast<std::size_t>(spec.hidden)),
      vectors_(parts.size() - parts.matrices()) {
  std::size_t rows = 0;
  for (const Parameter& parameter : list.list()) {
    if (parameter.role == Role::decision && parameter.shape.size() == 2) {
      row_offsets_[parameter.offset] = rows;
      rows +=
          static_cast<std::size_t>(padded_decisions(spec)) * static_cast<std::size_t>(spec.hidden);
    }
  }
  rows_ = winnow::cuda::DeviceBuffer<bf16>(rows);
  rows_.fill(0);
}

void VectorWeights::gather(const RankParts& parts, const Peers& peers,
                           const Peers::Arrays<float>& held, cudaStream_t stream) {
  parts.for_pieces(parts.vectors(),
                   [&](int rank, std::size_t at, std::size_t from, std::size_t count) {
                     peers.copy(held, rank, from, vectors_.data() + (at - first_), count, stream);
                   });
  for (const auto& [at, offset] : row_offsets_) {
    round_values(rows_.data() + offset, vectors_.data() + (at - first_), used_, stream);
  }
}

}  // namespace winnow::train::cuda
