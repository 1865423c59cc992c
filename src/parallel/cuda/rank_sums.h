// Kernels by which ranks add up what each of them has on its device. Each rank launches the same
// ones in the same order; a kernel waits for its peers' and fails its device when they do not come.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace winnow::parallel::cuda {

inline constexpr int kMostRanks = 8;
/// Blocks of one kernel, each of which waits for the same one of other ranks.
inline constexpr int kMostBlocks = 128;

/// Where ranks tell each other that they have come. Each rank has flags [kMostRanks, kMostBlocks]
/// in its own memory, in which others write; zero at first.
struct Arrivals {
  int rank = 0;
  int ranks = 1;
  std::array<std::uint32_t*, kMostRanks> flags = {};  // by rank
  std::uint32_t* epochs = nullptr;                    // [kMostBlocks], this rank's alone
};

/// A matrix of which each rank has a part, [count] numbers of float or bf16 in memory that all can
/// read. By rank.
struct Parts {
  std::array<const void*, kMostRanks> of = {};
  bool in_16_bits = false;
};

/// sum [count] = the parts of all ranks, added in their order; with `add` they are added to what
/// sum has. count is a multiple of 8. The parts may change when the next sum of this rank is
/// complete.
void sum_parts(const Arrivals& arrivals, const Parts& parts, float* sum, bool add,
               std::size_t count, cudaStream_t stream);

/// The same of `ranks` parts that their hosts know to be complete, and leave as they are until this
/// is complete: nothing waits. `sum` may be one of the parts.
void sum_complete_parts(const Parts& parts, int ranks, float* sum, std::size_t count,
                        cudaStream_t stream);

/// Sums of rows in one pass over a model, at most. Number 0 is that of embeddings.
inline constexpr std::uint32_t kMostSums = 1024;

/// Memory for the rows of a step, whose numbers travel between ranks with the sum that they belong
/// to: [3 places, ranks, stride] pairs of a number and its epoch, zero at first. Sums take the
/// places in turn: one may be written while another rank still reads the one before it.
struct RowInboxes {
  int rank = 0;
  int ranks = 1;
  std::array<uint2*, kMostRanks> of = {};  // by rank
  std::size_t stride = 0;                  // numbers in a place of one rank
  std::uint32_t* passes = nullptr;         // of this rank, so far: 1 after the first
  std::uint32_t* arrived = nullptr;        // blocks of the first sum of a pass, zero between passes
};

/// The sum `number` of rows of which each rank has a part, and what the layer behind it takes
/// (ops::cuda::ResidualStream with one part). Number 0 begins a pass.
struct RowSums {
  const RowInboxes* inboxes = nullptr;  // in device memory
  std::uint32_t number = 0;
  const float* part = nullptr;  // [rows, cols], this rank's
  int rows = 0;
  int cols = 0;
  float* sum = nullptr;                // number 0 replaces it, others are added
  const float* norm_weight = nullptr;  // null: only the sum is wanted
  bf16* normed = nullptr;              // [rows, cols] sum * norm_weight
  float* square_sums = nullptr;        // [rows]
};
void sum_rows(const RowSums& rows, cudaStream_t stream);

/// Columns of a matrix that each rank has some of: `own` [rows, cols] becomes the columns from
/// `first` on of the matrix `whole` [rows, stride] of rank 0, which goes on when all are there.
struct GatheredColumns {
  const float* own = nullptr;
  float* whole = nullptr;  // in rank 0's memory
  int rows = 0;
  int cols = 0;
  int first = 0;
  int stride = 0;
};
void gather_columns(const Arrivals& arrivals, const GatheredColumns& columns, cudaStream_t stream);

}  // namespace winnow::parallel::cuda
