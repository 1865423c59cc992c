// Ranks whose devices exchange results through NCCL: processes, on one machine or several.
#pragma once

#include <memory>

#include "parallel/cuda/device_ranks.h"

namespace winnow::parallel::cuda {

/// Meets the other ranks of `host`, which must outlive the result; each needs a device of its own,
/// which must be the current one. Throws Error that names the call if NCCL fails, or if winnow was
/// built without it. If NCCL reports later that a link or a rank is lost, fails `host`.
std::unique_ptr<DeviceRanks> make_nccl_ranks(Communicator& host);

}  // namespace winnow::parallel::cuda
