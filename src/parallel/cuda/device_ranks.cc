#include "parallel/cuda/device_ranks.h"

#include <utility>

#include "parallel/cuda/nccl_ranks.h"
#include "parallel/cuda/peer_access.h"
#include "parallel/cuda/peer_ranks.h"

namespace winnow::parallel::cuda {

std::unique_ptr<DeviceRanks> make_device_ranks(Communicator& host, int device) {
  auto access =
      host.size() <= kMostRanks || host.in_one_process() ? make_peer_access(host, device) : nullptr;
  if (access != nullptr) {
    return std::make_unique<PeerRanks>(host, std::move(access), device);
  }
  return make_nccl_ranks(host);
}

}  // namespace winnow::parallel::cuda
