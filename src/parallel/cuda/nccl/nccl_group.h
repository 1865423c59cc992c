// The group of ranks that NCCL knows.
#pragma once

#include <nccl.h>

#include <condition_variable>
#include <mutex>
#include <string_view>
#include <thread>

#include "parallel/communicator.h"

namespace winnow::parallel::cuda {

/// Throws Error that names `what`, unless `result` is success.
void check_nccl(ncclResult_t result, std::string_view what);

/// One rank's member of the group. A thread looks once a second whether NCCL has lost a rank or a
/// link, and then fails the ranks, though this rank's own thread may be waiting for its device.
class NcclGroup {
 public:
  /// Meets all ranks of `host`, which must outlive this.
  explicit NcclGroup(Communicator& host);
  /// Waits for the device and for the other ranks, except after an exception.
  ~NcclGroup();
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  [[nodiscard]] ncclComm_t get() const { return group_; }

 private:
  void watch(const std::stop_token& stop);

  Communicator& host_;
  ncclComm_t group_ = nullptr;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::jthread watch_;
};

}  // namespace winnow::parallel::cuda
