#include "train/cuda_memory/weights.h"

#include "base/dtype.h"
#include "train/cuda_memory/activations.h"

namespace winnow::train::cuda {
namespace {

// Of HeldState: values and two moments.
std::size_t held_bytes(const RankParts& parts) {
  return 3 * parts.largest() * sizeof(float);
}

// Of VectorWeights.
std::size_t vector_bytes(const model::ModelSpec& spec, const RankParts& parts) {
  const auto rows = static_cast<std::size_t>(2 * spec.layer_count() * spec.hidden) *
                    static_cast<std::size_t>(padded_decisions(spec));
  return (parts.size() - parts.matrices()) * sizeof(float) + rows * sizeof(bf16);
}

// Of GradientSlots.
std::size_t slot_bytes(const RankParts& parts) {
  return (2 * parts.largest_layer() + parts.largest_end()) * sizeof(float);
}

}  // namespace

std::size_t whole_weights_bytes(const model::ModelSpec& spec, const RankParts& parts) {
  return held_bytes(parts) + vector_bytes(spec, parts) + parts.matrices() * sizeof(bf16) +
         parts.size() * sizeof(float);
}

std::size_t sharded_weights_bytes(const model::ModelSpec& spec, const RankParts& parts) {
  const std::size_t vectors = parts.size() - parts.matrices();
  return held_bytes(parts) + vector_bytes(spec, parts) +
         (parts.largest() + vectors) * sizeof(float) + parts.largest_end() * sizeof(bf16) +
         slot_bytes(parts);
}

RankParts frozen_parts(const ParameterList& list, const model::ModelSpec& spec, ZeroStage stage,
                       int rank, int ranks) {
  return {list, spec.layer_count(), stage, rank, ranks, false};
}

std::size_t held_matrices(const RankParts& parts) {
  return parts.own().held({0, parts.matrices()}).second;
}

std::size_t frozen_weights_bytes(const model::ModelSpec& spec, ZeroStage stage, int ranks) {
  const ParameterList list(spec, Trained::everything);
  const RankParts parts = frozen_parts(list, spec, stage, 0, ranks);
  const std::size_t matrices = stage == ZeroStage::everything
                                   ? held_matrices(parts) + parts.largest_end()
                                   : parts.matrices();
  return matrices * sizeof(bf16) + (parts.size() - parts.matrices()) * sizeof(float);
}

}  // namespace winnow::train::cuda
