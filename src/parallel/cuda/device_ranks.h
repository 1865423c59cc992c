// Ranks that have a CUDA device each, whose kernels exchange results: what a rank's part of a model
// asks of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "parallel/communicator.h"
#include "parallel/cuda/rank_sums.h"

namespace winnow::parallel::cuda {

/// A matrix that has columns of every rank.
struct RankColumns {
  const float* own = nullptr;  // [rows, this rank's columns]
  int rows = 0;
  std::span<const int> cuts{};  // rank r has columns [cuts[r], cuts[r + 1])

  [[nodiscard]] int first(int rank) const { return cuts[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] int cols(int rank) const { return first(rank + 1) - first(rank); }
  [[nodiscard]] int all_cols() const { return cuts.back(); }
};

/// One rank's member of the group. All ranks call the same functions in the same order, and each
/// rank's kernels go to one stream at a time. Functions with a stream may be recorded in a graph.
class DeviceRanks {
 public:
  /// Where parts of a sum lie. Two sums in a row need different places: one may be written while
  /// another rank still reads the place before it.
  enum class Place : std::uint8_t { attention, feed_forward, embedding, shared_expert, norms };
  static constexpr std::size_t kPlaces = 5;

  virtual ~DeviceRanks() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  /// Waits for the host threads of all ranks. Needed before an operation on a device's memory that
  /// waits for kernels of other ranks: these kernels must not wait for this rank then.
  virtual void meet() const = 0;

  /// Makes room for parts of `floats` floats at a place. If that is more than before, waits for the
  /// devices of all ranks; else does nothing.
  virtual void reserve_part(Place place, std::size_t floats) = 0;
  /// Where this rank writes its part for sum(), as float or bf16.
  [[nodiscard]] virtual void* part(Place place) const = 0;
  /// sum [count] = or += the sum of the parts that all ranks have written. The part changes.
  virtual void sum(Place place, bool in_16_bits, float* sum, bool add, std::size_t count,
                   cudaStream_t stream) const = 0;

  /// Whether kernels of one rank can read and write memory of another: then they can add up rows
  /// themselves, through row_inboxes().
  [[nodiscard]] virtual bool share_memory() const = 0;
  /// Makes room for sums of `rows` rows, as reserve_part() does. Only with shared memory.
  virtual void reserve_rows(int rows, int cols) = 0;
  /// For RowSums, and for kernels that add up their own results. In device memory; null without
  /// shared memory.
  [[nodiscard]] virtual const RowInboxes* row_inboxes() const = 0;

  /// Makes room on each rank for `bytes` bytes that kernels of all ranks read and write, filled
  /// with zeros whenever the room grows. As reserve_part(). Only with shared memory.
  virtual void reserve_shared(std::size_t bytes) = 0;
  /// That memory, by rank. Null for ranks that there are not.
  [[nodiscard]] virtual std::array<std::byte*, kMostRanks> shared() const = 0;

  /// Makes room on rank 0 for a matrix of `floats` floats, as reserve_part().
  virtual void reserve_gathered(std::size_t floats) = 0;
  /// Rank 0's matrix, which gather() fills. Only for rank 0.
  [[nodiscard]] virtual float* gathered() const = 0;
  /// Copies all ranks' columns to gathered() [rows, all columns].
  virtual void gather(const RankColumns& columns, cudaStream_t stream) const = 0;

  /// The least of what the ranks pass. Waits for the host threads of all ranks.
  [[nodiscard]] virtual int least(int own) const = 0;

  /// Changes when memory has moved, which makes recorded graphs invalid.
  [[nodiscard]] virtual int generation() const = 0;
};

/// Meets the other ranks of `host`, which must outlive the result. `device`: this rank's, which
/// must be the current one. Threads of one process read each other's memory, and so do processes of
/// one machine if make_peer_access() can; throws Error if a device cannot read that of another
/// thread. Other processes use NCCL; throws Error if winnow was built without it.
std::unique_ptr<DeviceRanks> make_device_ranks(Communicator& host, int device);

}  // namespace winnow::parallel::cuda
