// The memory that weights, gradients and moments take on a device.
#pragma once

#include "train/cuda_memory/rank_parts.h"
#include "train/options.h"

namespace winnow::train::cuda {

/// Bytes of WholeWeights and of ShardedWeights.
std::size_t whole_weights_bytes(const model::ModelSpec& spec, const RankParts& parts);
std::size_t sharded_weights_bytes(const model::ModelSpec& spec, const RankParts& parts);

/// How ranks share out FrozenWeights.
RankParts frozen_parts(const ParameterList& list, const model::ModelSpec& spec, ZeroStage stage,
                       int rank, int ranks);
/// Elements of matrices that a rank holds.
std::size_t held_matrices(const RankParts& parts);
/// Bytes of FrozenWeights without LayerSlots.
std::size_t frozen_weights_bytes(const model::ModelSpec& spec, ZeroStage stage, int ranks);

}  // namespace winnow::train::cuda
