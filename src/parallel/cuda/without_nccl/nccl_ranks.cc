#include "parallel/cuda/nccl_ranks.h"

#include "base/error.h"
#include "parallel/cuda/nccl_arrays.h"

namespace winnow::parallel::cuda {
namespace {

[[noreturn]] void fail_without_nccl() {
  fail("ranks in several processes need NCCL on CUDA devices, and winnow was built without it");
}

}  // namespace

std::unique_ptr<DeviceRanks> make_nccl_ranks(Communicator& /*host*/) {
  fail_without_nccl();
}

std::unique_ptr<RankArrays> make_nccl_arrays(Communicator& /*host*/) {
  fail_without_nccl();
}

}  // namespace winnow::parallel::cuda
