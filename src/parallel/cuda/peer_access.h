// How the kernels of a rank reach the memory of other ranks' devices.
#pragma once

#include <memory>
#include <vector>

#include "parallel/communicator.h"

namespace winnow::parallel::cuda {

/// One rank's member of the group. All ranks call the same functions in the same order, and each
/// call waits for the host threads of all ranks.
class PeerAccess {
 public:
  /// Memory of one device, from cudaMalloc.
  using Memory = std::shared_ptr<void>;

  virtual ~PeerAccess() = default;

  /// The memory that each rank passes, by rank, at addresses for this rank's kernels.
  [[nodiscard]] virtual std::vector<Memory> exchange(Memory own) = 0;
  /// Drops memory that exchange() has returned, once no kernel of any rank uses it.
  virtual void release(std::vector<Memory>& all) = 0;
  /// Whether a rank may also drop it alone, while others use it: then they keep it alive.
  [[nodiscard]] virtual bool drops_alone() const = 0;
};

/// Lets the current device, `device`, read and write the memory of the devices of all ranks, which
/// are threads of one process. Throws Error that names the devices if it cannot.
void allow_peer_access(Communicator& host, int device);

/// For threads of one process, as allow_peer_access(), or for processes of one machine, by CUDA
/// IPC. `host` must outlive the result. Null if these processes cannot share device memory: they
/// are on several machines, or some device cannot reach another.
std::unique_ptr<PeerAccess> make_peer_access(Communicator& host, int device);

}  // namespace winnow::parallel::cuda
