// Ranks that are threads of one process. Each has a CUDA device of its own, whose memory the other
// devices read and write (NVLink, or PCIe if it allows that).
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "base/cuda/device.h"
#include "parallel/communicator.h"
#include "parallel/cuda/rank_sums.h"

namespace winnow::parallel::cuda {

/// One rank's member of the group. All ranks call the same functions in the same order, and each
/// rank's kernels go to one stream at a time.
class DeviceRanks {
 public:
  /// Parts of the residual stream use these places in turn: one may be written while another rank
  /// still reads the place before it.
  enum class Place : std::uint8_t { attention, feed_forward, embedding };

  /// Meets the other ranks of `host`, which must outlive this. `device`: this rank's, which must be
  /// the current one. Throws Error if a device cannot read the memory of another one.
  DeviceRanks(Communicator& host, int device);
  /// Waits for this rank's kernels. Other ranks keep the shared memory that they use.
  ~DeviceRanks();
  DeviceRanks(const DeviceRanks&) = delete;
  DeviceRanks& operator=(const DeviceRanks&) = delete;

  [[nodiscard]] int rank() const { return host_.rank(); }
  [[nodiscard]] int size() const { return host_.size(); }

  /// Makes room for parts of `floats` floats, and for sums of `rows` rows. If that is more than
  /// before, waits for the devices of all ranks; else does nothing.
  void reserve_parts(std::size_t floats);
  void reserve_rows(int rows, int cols);

  /// Waits for the host threads of all ranks. Needed before an operation on a device's memory that
  /// waits for kernels of other ranks: these kernels must not wait for this rank then.
  void meet() const { host_.meet(); }

  /// Returns the pointers that the ranks pass, by rank. Waits for the host threads of all ranks.
  [[nodiscard]] std::vector<void*> exchange(void* own) const;

  /// Changes when memory has moved, which makes recorded graphs invalid.
  [[nodiscard]] int generation() const { return generation_; }

  /// Where this rank writes its part for sum(), as float or bf16.
  [[nodiscard]] void* part(Place place) const;
  /// sum [count] = or += the sum of the parts that all ranks have written.
  void sum(Place place, bool in_16_bits, float* sum, bool add, std::size_t count,
           cudaStream_t stream) const;
  /// For RowSums, and for kernels that add up their own results. In device memory.
  [[nodiscard]] const RowInboxes* row_inboxes() const { return row_inboxes_.data(); }

  /// For gather(): the address of rank 0's `whole`, which every rank needs. Waits for all ranks.
  [[nodiscard]] float* share_of_first(float* whole) const;
  void gather(const GatheredColumns& columns, cudaStream_t stream) const;

 private:
  static constexpr std::size_t kPlaces = 3;
  using Bytes = winnow::cuda::DeviceBuffer<std::byte>;
  /// Memory of each rank, by rank. Every rank keeps all of it alive.
  using SharedBytes = std::vector<std::shared_ptr<const Bytes>>;

  void allow_access(int device) const;
  /// Replaces the memory of all ranks by `bytes` bytes each, filled with zeros.
  void renew(SharedBytes& all, std::size_t bytes);

  Communicator& host_;
  int device_;
  SharedBytes flags_;
  winnow::cuda::DeviceBuffer<std::uint32_t> epochs_;
  Arrivals arrivals_;
  std::array<SharedBytes, kPlaces> parts_;
  std::size_t part_bytes_ = 0;
  SharedBytes inboxes_;
  winnow::cuda::DeviceBuffer<RowInboxes> row_inboxes_;
  winnow::cuda::DeviceBuffer<std::uint32_t> row_counts_;  // passes, arrived
  std::size_t row_stride_ = 0;
  int generation_ = 0;
};

}  // namespace winnow::parallel::cuda
