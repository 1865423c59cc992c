#include "parallel/cuda/nccl_arrays.h"

#include "parallel/cuda/nccl/nccl_group.h"

namespace winnow::parallel::cuda {
namespace {

class NcclArrays final : public RankArrays {
 public:
  explicit NcclArrays(Communicator& host) : group_(host) {}

  // Parts differ in length, so each is a sum of its own.
  void reduce_scatter(const float* own, std::span<const std::size_t> cuts, float* to,
                      cudaStream_t stream) const override {
    for (std::size_t rank = 0; rank + 1 < cuts.size(); ++rank) {
      check_nccl(ncclReduce(own + cuts[rank], to, cuts[rank + 1] - cuts[rank], ncclFloat, ncclSum,
                            static_cast<int>(rank), group_.get(), stream),
                 "add up an array");
    }
  }

  void copy_from(int rank, const void* own, void* to, std::size_t bytes,
                 cudaStream_t stream) const override {
    check_nccl(ncclBroadcast(own, to, bytes, ncclChar, rank, group_.get(), stream),
               "copy an array");
  }

 private:
  NcclGroup group_;
};

}  // namespace

std::unique_ptr<RankArrays> make_nccl_arrays(Communicator& host) {
  return std::make_unique<NcclArrays>(host);
}

}  // namespace winnow::parallel::cuda
