#include "parallel/cuda/peer_access.h"

#include "base/cuda/device.h"
#include "base/error.h"
#include "parallel/all_values.h"
#include "parallel/cuda/process_access.h"

namespace winnow::parallel::cuda {
namespace {

// Threads pass pointers. All ranks keep the memory alive: one of them may end early, by an error.
class ThreadAccess final : public PeerAccess {
 public:
  ThreadAccess(Communicator& host, int device) : host_(host) { allow_peer_access(host, device); }

  [[nodiscard]] std::vector<Memory> exchange(Memory own) override {
    std::vector<Memory> all;
    for (const Memory* other : all_values<const Memory*>(host_, &own)) {
      all.push_back(*other);
    }
    host_.meet();  // all ranks have taken it
    return all;
  }

  void release(std::vector<Memory>& all) override {
    winnow::cuda::check(cudaDeviceSynchronize(), "wait for a device");
    host_.meet();
    all.clear();
  }

  [[nodiscard]] bool drops_alone() const override { return true; }

 private:
  Communicator& host_;
};

}  // namespace

void allow_peer_access(Communicator& host, int device) {
  for (const int peer : all_values(host, device)) {
    if (peer == device) {
      continue;
    }
    int can = 0;
    winnow::cuda::check(cudaDeviceCanAccessPeer(&can, device, peer), "look for peer devices");
    require(can != 0, "{} ranks: device {} cannot read the memory of device {}", host.size(),
            device, peer);
    if (const cudaError_t code = cudaDeviceEnablePeerAccess(peer, 0);
        code != cudaErrorPeerAccessAlreadyEnabled) {
      winnow::cuda::check(code, "read a peer device's memory");
    }
    cudaGetLastError();  // clears the error that access was enabled before
  }
}

std::unique_ptr<PeerAccess> make_peer_access(Communicator& host, int device) {
  if (host.in_one_process()) {
    return std::make_unique<ThreadAccess>(host, device);
  }
  return make_process_access(host);
}

}  // namespace winnow::parallel::cuda
