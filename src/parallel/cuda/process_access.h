// Device memory that processes of one machine share, by CUDA IPC.
#pragma once

#include <memory>

#include "parallel/cuda/peer_access.h"

namespace winnow::parallel::cuda {

/// As make_peer_access(), for processes.
std::unique_ptr<PeerAccess> make_process_access(Communicator& host);

}  // namespace winnow::parallel::cuda
