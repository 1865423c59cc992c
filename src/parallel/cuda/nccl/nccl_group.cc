#include "parallel/cuda/nccl/nccl_group.h"

#include <cuda_runtime_api.h>

#include <chrono>
#include <exception>
#include <span>

#include "base/error.h"

namespace winnow::parallel::cuda {

void check_nccl(ncclResult_t result, std::string_view what) {
  if (result != ncclSuccess) {
    fail("NCCL could not {}: {} ({})", what, ncclGetErrorString(result), ncclGetLastError(nullptr));
  }
}

NcclGroup::NcclGroup(Communicator& host) : host_(host) {
  ncclUniqueId id{};
  if (host.rank() == 0) {
    check_nccl(ncclGetUniqueId(&id), "name the group of ranks");
  }
  host.broadcast(std::as_writable_bytes(std::span(&id, 1)));
  check_nccl(ncclCommInitRank(&group_, host.size(), id, host.rank()), "join the other ranks");
  watch_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
}

NcclGroup::~NcclGroup() {
  watch_.request_stop();
  watch_.join();
  if (std::uncaught_exceptions() > 0) {
    ncclCommAbort(group_);
    return;
  }
  cudaDeviceSynchronize();
  ncclCommDestroy(group_);
}

void NcclGroup::watch(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    wake_.wait_for(lock, stop, std::chrono::seconds(1), [] { return false; });
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(group_, &state);
    if (asked != ncclSuccess || (state != ncclSuccess && state != ncclInProgress)) {
      host_.fail(fmt::format("rank {}: NCCL has lost another rank: {} ({})", host_.rank(),
                             ncclGetErrorString(state), ncclGetLastError(group_)));
      return;
    }
  }
}

}  // namespace winnow::parallel::cuda
