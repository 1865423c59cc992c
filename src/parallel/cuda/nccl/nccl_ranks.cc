#include "parallel/cuda/nccl_ranks.h"

#include <algorithm>
#include <array>
#include <exception>

#include "base/cuda/device.h"
#include "base/error.h"
#include "parallel/all_values.h"
#include "parallel/cuda/nccl/nccl_group.h"

namespace winnow::parallel::cuda {
namespace {

using winnow::cuda::DeviceBuffer;

// Operations that begin together: NCCL needs that where one rank receives from several.
class Together {
 public:
  Together() { check_nccl(ncclGroupStart(), "begin a group"); }
  ~Together() noexcept(false) {
    const ncclResult_t result = ncclGroupEnd();
    if (std::uncaught_exceptions() == 0) {
      check_nccl(result, "end a group");
    }
  }
  Together(const Together&) = delete;
  Together& operator=(const Together&) = delete;
};

class NcclRanks final : public DeviceRanks {
 public:
  explicit NcclRanks(Communicator& host) : host_(host), group_(host) {}

  [[nodiscard]] int rank() const override { return host_.rank(); }
  [[nodiscard]] int size() const override { return host_.size(); }
  void meet() const override { host_.meet(); }

  void reserve_part(Place place, std::size_t floats) override {
    DeviceBuffer<float>& part = parts_[static_cast<std::size_t>(place)];
    if (floats > part.size()) {
      make_room();
      part.ensure(floats);
    }
  }

  [[nodiscard]] void* part(Place place) const override {
    return parts_[static_cast<std::size_t>(place)].data();
  }

  void sum(Place place, bool in_16_bits, float* sum, bool add, std::size_t count,
           cudaStream_t stream) const override {
    void* own = part(place);
    void* to = add || in_16_bits ? own : sum;
    check_nccl(ncclAllReduce(own, to, count, in_16_bits ? ncclBfloat16 : ncclFloat, ncclSum,
                             group_.get(), stream),
               "add up parts");
    if (to == own) {
      sum_complete_parts({.of = {own}, .in_16_bits = in_16_bits}, 1, sum, add, count, stream);
    }
  }

  [[nodiscard]] bool share_memory() const override { return false; }
  void reserve_rows(int /*rows*/, int /*cols*/) override {
    fail("rows are added up by kernels only where ranks share memory");
  }
  [[nodiscard]] const RowInboxes* row_inboxes() const override { return nullptr; }

  void reserve_shared(std::size_t /*bytes*/) override {
    fail("devices share memory only within one machine");
  }
  [[nodiscard]] std::array<std::byte*, kMostRanks> shared() const override { return {}; }

  void reserve_gathered(std::size_t floats) override {
    if (floats > most_gathered_) {
      most_gathered_ = floats;
      make_room();  // on all ranks, so that all record graphs again
      gathered_.ensure(rank() == 0 ? floats : 0);
      received_.ensure(rank() == 0 ? floats : 0);
    }
  }
  [[nodiscard]] float* gathered() const override { return gathered_.data(); }

  [[nodiscard]] int least(int own) const override {
    return std::ranges::min(all_values(host_, own));
  }

  // Parts arrive one after another, each [rows, columns of its rank].
  void gather(const RankColumns& columns, cudaStream_t stream) const override {
    const auto rows = static_cast<std::size_t>(columns.rows);
    const auto received = [&](int from) {
      return received_.data() + rows * static_cast<std::size_t>(columns.first(from));
    };
    const auto count = [&](int from) {
      return rows * static_cast<std::size_t>(columns.cols(from));
    };
    {
      const Together together;
      if (rank() != 0) {
        check_nccl(ncclSend(columns.own, count(rank()), ncclFloat, 0, group_.get(), stream),
                   "send columns");
      }
      for (int from = 1; rank() == 0 && from < size(); ++from) {
        check_nccl(ncclRecv(received(from), count(from), ncclFloat, from, group_.get(), stream),
                   "receive columns");
      }
    }
    for (int from = 0; rank() == 0 && from < size(); ++from) {
      const std::size_t width = sizeof(float) * static_cast<std::size_t>(columns.cols(from));
      winnow::cuda::check(
          cudaMemcpy2DAsync(gathered() + columns.first(from),
                            sizeof(float) * static_cast<std::size_t>(columns.all_cols()),
                            from == 0 ? columns.own : received(from), width, width, rows,
                            cudaMemcpyDeviceToDevice, stream),
          "place columns");
    }
  }

  [[nodiscard]] int generation() const override { return generation_; }

 private:
  // Before memory moves that kernels may use.
  void make_room() {
    ++generation_;
    winnow::cuda::check(cudaDeviceSynchronize(), "wait for a device");
  }

  Communicator& host_;
  NcclGroup group_;
  std::array<DeviceBuffer<float>, kPlaces> parts_;
  std::size_t most_gathered_ = 0;
  DeviceBuffer<float> gathered_;  // on rank 0
  DeviceBuffer<float> received_;  // on rank 0: columns of all ranks, one rank after another
  int generation_ = 0;
};

}  // namespace

std::unique_ptr<DeviceRanks> make_nccl_ranks(Communicator& host) {
  return std::make_unique<NcclRanks>(host);
}

}  // namespace winnow::parallel::cuda
