// Kernels that add up values of several ranks' devices. Each rank launches the same kernels in the
// same order. A kernel waits for the peers' kernels, and fails its device if they do not come.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace winnow::parallel::cuda {

inline constexpr int kMostRanks = 8;
/// The most blocks of a kernel. Each block waits for the same block of the other ranks.
inline constexpr int kMostBlocks = 128;

/// Flags by which ranks report that they have arrived. Each rank has flags [kMostRanks,
/// kMostBlocks] in its own memory, which the other ranks write; zero at first.
struct Arrivals {
  int rank = 0;
  int ranks = 1;
  std::array<std::uint32_t*, kMostRanks> flags = {};  // by rank
  std::uint32_t* epochs = nullptr;                    // [kMostBlocks], only for this rank
};

/// The ranks' parts of a sum: by rank, [count] numbers in float or bf16, in memory that all ranks
/// can read.
struct Parts {
  std::array<const void*, kMostRanks> of = {};
  bool in_16_bits = false;
};

/// sum [count] = the parts of all ranks, added in the order of ranks; with `add` they are added to
/// the values of sum. count is a multiple of 8. Parts of many numbers are added up a share per
/// rank: then the sums are rounded to the type of the parts, and replace some numbers of the parts.
/// The parts may change when this rank's next sum is complete.
void sum_parts(const Arrivals& arrivals, const Parts& parts, float* sum, bool add,
               std::size_t count, cudaStream_t stream);

/// The same for `ranks` parts that are complete already, as hosts or events ensure, and that do not
/// change until this is complete: no kernel waits. `sum` may be one of the parts.
void sum_complete_parts(const Parts& parts, int ranks, float* sum, bool add, std::size_t count,
                        cudaStream_t stream);

/// The most sums of rows in one pass over a model. Number 0 is the sum of embeddings.
inline constexpr std::uint32_t kMostSums = 1024;

/// The places of rows: sums use them in turn, as one may be written while another rank still reads
/// the place before it.
inline constexpr std::size_t kRowPlaces = 3;

/// Memory through which ranks exchange the rows of a step. Each number is stored with the epoch of
/// its sum: [kRowPlaces, ranks, stride] pairs of number and epoch, zero at first.
struct RowInboxes {
  int rank = 0;
  int ranks = 1;
  std::array<uint2*, kMostRanks> of = {};  // by rank
  std::size_t stride = 0;                  // numbers per place and rank
  std::uint32_t* passes = nullptr;         // this rank's passes so far: 1 in the first
  std::uint32_t* arrived = nullptr;        // finished blocks of a pass's first sum, then zero
};

/// Sum number 0, which begins a pass: rows of embeddings, of which each rank has a part, and the
/// input of the first layer (ops::cuda::ResidualStream with one part).
struct RowSums {
  const RowInboxes* inboxes = nullptr;  // in device memory
  const float* part = nullptr;          // [rows, cols], of this rank
  int rows = 0;
  int cols = 0;
  float* sum = nullptr;                // [rows, cols]
  const float* norm_weight = nullptr;  // [cols]
  bf16* normed = nullptr;              // [rows, cols] sum * norm_weight
  float* square_sums = nullptr;        // [rows]
};
void sum_rows(const RowSums& rows, cudaStream_t stream);

/// Gathers the columns of a matrix from all ranks: `own` [rows, cols] becomes the columns from
/// `first` on of rank 0's matrix `whole` [rows, stride]. Rank 0 waits until all have arrived.
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
