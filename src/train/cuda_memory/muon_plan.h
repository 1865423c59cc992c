// The matrices that Muon on a device updates together, and the memory that this takes.
#pragma once

#include <cstddef>
#include <vector>

#include "train/cuda_memory/muon_batch.h"
#include "train/partition.h"

namespace winnow::train::cuda {

/// The matrices of a part of the parameters, which cuts none of them.
struct MuonPlan {
  std::vector<MuonMatrix> matrices;
  std::vector<MuonBatch> batches;  // their matrices are null: they are stored one after another
  // Maximum elements:
  std::size_t x = 0;
  std::size_t gram = 0;
  std::size_t count = 0;
};

MuonPlan muon_plan(const ParameterList& list, const Partition& partition);

/// Bytes of the products' operands.
std::size_t muon_bytes(const ParameterList& list, const Partition& partition);

}  // namespace winnow::train::cuda
