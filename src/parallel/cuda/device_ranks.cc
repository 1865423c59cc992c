#include "parallel/cuda/device_ranks.h"

#include "parallel/cuda/nccl_ranks.h"
#include "parallel/cuda/peer_ranks.h"

namespace winnow::parallel::cuda {

std::unique_ptr<DeviceRanks> make_device_ranks(Communicator& host, int device) {
  if (host.in_one_process()) {
    return std::make_unique<PeerRanks>(host, device);
  }
  return make_nccl_ranks(host);
}

}  // namespace winnow::parallel::cuda
