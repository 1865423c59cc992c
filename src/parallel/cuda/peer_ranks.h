// Ranks that are threads of one process, whose devices read and write each other's memory (NVLink,
// or PCIe if it allows that).
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "base/cuda/device.h"
#include "parallel/cuda/device_ranks.h"

namespace winnow::parallel::cuda {

class PeerRanks final : public DeviceRanks {
 public:
  /// As make_device_ranks().
  PeerRanks(Communicator& host, int device);
  /// Waits for this rank's kernels. Other ranks keep the shared memory that they use.
  ~PeerRanks() override;
  PeerRanks(const PeerRanks&) = delete;
  PeerRanks& operator=(const PeerRanks&) = delete;

  [[nodiscard]] int rank() const override { return host_.rank(); }
  [[nodiscard]] int size() const override { return host_.size(); }
  void meet() const override { host_.meet(); }
  void reserve_parts(std::size_t floats) override;
  [[nodiscard]] void* part(Place place) const override;
  void sum(Place place, bool in_16_bits, float* sum, bool add, std::size_t count,
           cudaStream_t stream) const override;
  [[nodiscard]] bool share_memory() const override { return true; }
  void reserve_rows(int rows, int cols) override;
  [[nodiscard]] const RowInboxes* row_inboxes() const override { return row_inboxes_.data(); }
  [[nodiscard]] float* share_of_first(float* whole, std::size_t floats) override;
  void gather(const RankColumns& columns, cudaStream_t stream) const override;
  [[nodiscard]] int generation() const override { return generation_; }

  /// Returns the pointers that the ranks pass, by rank. Waits for the host threads of all ranks.
  [[nodiscard]] std::vector<void*> exchange(void* own) const;

 private:
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
