// Ranks whose devices read and write each other's memory (NVLink, or PCIe if it allows that).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "base/cuda/device.h"
#include "parallel/cuda/device_ranks.h"
#include "parallel/cuda/peer_access.h"

namespace winnow::parallel::cuda {

class PeerRanks final : public DeviceRanks {
 public:
  /// As make_device_ranks().
  PeerRanks(Communicator& host, std::unique_ptr<PeerAccess> access, int device);
  /// Waits for this rank's kernels. Processes also wait for each other, except after an exception.
  ~PeerRanks() override;
  PeerRanks(const PeerRanks&) = delete;
  PeerRanks& operator=(const PeerRanks&) = delete;

  [[nodiscard]] int rank() const override { return host_.rank(); }
  [[nodiscard]] int size() const override { return host_.size(); }
  void meet() const override { host_.meet(); }
  void reserve_part(Place place, std::size_t floats) override;
  [[nodiscard]] void* part(Place place) const override;
  void sum(Place place, bool in_16_bits, float* sum, bool add, std::size_t count,
           cudaStream_t stream) const override;
  [[nodiscard]] bool share_memory() const override { return true; }
  void reserve_rows(int rows, int cols) override;
  [[nodiscard]] const RowInboxes* row_inboxes() const override { return row_inboxes_.data(); }
  void reserve_shared(std::size_t bytes) override;
  [[nodiscard]] std::array<std::byte*, kMostRanks> shared() const override {
    return addresses_of<std::byte>(shared_.of);
  }
  void reserve_gathered(std::size_t floats) override;
  [[nodiscard]] float* gathered() const override;
  void gather(const RankColumns& columns, cudaStream_t stream) const override;
  [[nodiscard]] int least(int own) const override;
  [[nodiscard]] int generation() const override { return generation_; }

 private:
  /// Memory of each rank, by rank.
  using SharedMemory = std::vector<PeerAccess::Memory>;
  struct Growing {
    SharedMemory of;
    std::size_t bytes = 0;  // of each rank
  };

  template <class T>
  [[nodiscard]] static std::array<T*, kMostRanks> addresses_of(const SharedMemory& all) {
    std::array<T*, kMostRanks> addresses = {};
    std::ranges::transform(all, addresses.begin(),
                           [](const auto& memory) { return static_cast<T*>(memory.get()); });
    return addresses;
  }
  void release_all() noexcept;
  /// Replaces the memory of all ranks by `bytes` bytes on this one, filled with zeros.
  void renew(SharedMemory& all, std::size_t bytes);
  /// The same if that is more than before.
  void grow(Growing& all, std::size_t bytes);

  Communicator& host_;
  std::unique_ptr<PeerAccess> access_;
  int device_;
  SharedMemory flags_;
  winnow::cuda::DeviceBuffer<std::uint32_t> epochs_;
  Arrivals arrivals_;
  std::array<Growing, kPlaces> parts_;
  Growing shared_;
  SharedMemory gathered_;  // rank 0's matrix, and nothing of the others
  std::size_t gathered_floats_ = 0;
  SharedMemory inboxes_;
  winnow::cuda::DeviceBuffer<RowInboxes> row_inboxes_;
  winnow::cuda::DeviceBuffer<std::uint32_t> row_counts_;  // passes, arrived
  std::size_t row_stride_ = 0;
  int generation_ = 0;
};

}  // namespace winnow::parallel::cuda
