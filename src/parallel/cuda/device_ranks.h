// Ranks that are threads of one process, each with a CUDA device of its own whose memory the others
// read and write (NVLink, or PCIe where it allows that).
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "base/cuda/device.h"
#include "parallel/communicator.h"
#include "parallel/cuda/rank_sums.h"

namespace winnow::parallel::cuda {

/// One rank's end. All ranks call the same functions in the same order, their kernels go to one
/// stream of each rank at a time.
class DeviceRanks {
 public:
  /// Parts of the residual stream lie in places in turn: one may be written while another rank
  /// still reads the one before it.
  enum class Place : std::uint8_t { attention, feed_forward, embedding };

  /// Meets the other ranks of `host`, which must outlive this. `device`: this rank's, which is the
  /// current one. Throws Error where a device cannot read another one's memory.
  DeviceRanks(Communicator& host, int device);
  /// Waits for this rank's kernels. What others share with it stays until they are gone, too.
  ~DeviceRanks();
  DeviceRanks(const DeviceRanks&) = delete;
  DeviceRanks& operator=(const DeviceRanks&) = delete;

  [[nodiscard]] int rank() const { return host_.rank(); }
  [[nodiscard]] int size() const { return host_.size(); }

  /// Makes room for parts of so many floats, and for sums of so many rows. Waits for all
  /// ranks' devices when more is needed than before; else it does nothing.
  void reserve_parts(std::size_t floats);
  void reserve_rows(int rows, int cols);

  /// Waits for all ranks' hosts: what one of them does to its device's memory may have to wait for
  /// the kernels of others, which must not wait for it then.
  void meet() const { host_.meet(); }

  /// What each rank shows, by rank. Waits for all ranks' hosts.
  [[nodiscard]] std::vector<void*> exchange(void* own) const;

  /// Changes when memory has moved, to which recorded graphs would point.
  [[nodiscard]] int generation() const { return generation_; }

  /// Where this rank leaves its part for sum(), as float or bf16.
  [[nodiscard]] void* part(Place place) const;
  /// sum [count] (+)= the parts that all ranks have left.
  void sum(Place place, bool in_16_bits, float* sum, bool add, std::size_t count,
           cudaStream_t stream) const;
  /// For RowSums, in device memory, and for kernels that add up what they compute.
  [[nodiscard]] const RowInboxes* row_inboxes() const { return row_inboxes_.data(); }

  /// For gather(): rank 0's `whole`, as every rank must know it. Waits for all ranks.
  [[nodiscard]] float* share_of_first(float* whole) const;
  void gather(const GatheredColumns& columns, cudaStream_t stream) const;

 private:
  static constexpr std::size_t kPlaces = 3;
  using Bytes = winnow::cuda::DeviceBuffer<std::byte>;
  /// Memory of each rank, by rank, all of which everyone keeps.
  using SharedBytes = std::vector<std::shared_ptr<const Bytes>>;

  void allow_access(int device) const;
  /// Makes memory of so many bytes, filled with zeros, in place of what all had.
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
