#include "parallel/cuda/peer_ranks.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/error.h"
#include "parallel/all_values.h"

namespace winnow::parallel::cuda {
namespace {

std::size_t index_of(DeviceRanks::Place place) {
  return static_cast<std::size_t>(place);
}

}  // namespace

PeerRanks::PeerRanks(Communicator& host, std::unique_ptr<PeerAccess> access, int device)
    : host_(host), access_(std::move(access)), device_(device) {
  require(size() <= kMostRanks, "{} ranks on CUDA devices: expected at most {}", size(),
          kMostRanks);
  renew(flags_, std::size_t{kMostRanks} * kMostBlocks * sizeof(std::uint32_t));
  epochs_.ensure(kMostBlocks);
  epochs_.fill(0);
  arrivals_ = {.rank = rank(),
               .ranks = size(),
               .flags = addresses_of<std::uint32_t>(flags_),
               .epochs = epochs_.data()};
}

PeerRanks::~PeerRanks() {
  int current = 0;
  cudaGetDevice(&current);
  cudaSetDevice(device_);
  cudaDeviceSynchronize();
  if (!access_->drops_alone() && std::uncaught_exceptions() == 0) {
    release_all();
  }
  cudaSetDevice(current);
}

void PeerRanks::release_all() noexcept {
  try {
    access_->release(flags_);
    for (Growing& parts : parts_) {
      access_->release(parts.of);
    }
    for (SharedMemory* all : {&shared_.of, &gathered_, &inboxes_}) {
      access_->release(*all);
    }
  } catch (const Error&) {
    return;  // another rank has failed, which ends all
  }
}

void PeerRanks::renew(SharedMemory& all, std::size_t bytes) {
  ++generation_;
  if (!all.empty()) {
    access_->release(all);
  }
  PeerAccess::Memory own = winnow::cuda::allocate(std::max<std::size_t>(bytes, 1));
  winnow::cuda::check(cudaMemset(own.get(), 0, bytes), "fill");
  winnow::cuda::wait_for_default_stream();
  all = access_->exchange(std::move(own));
}

void PeerRanks::grow(Growing& all, std::size_t bytes) {
  if (bytes > all.bytes) {
    all.bytes = bytes;
    renew(all.of, bytes);
  }
}

void PeerRanks::reserve_part(Place place, std::size_t floats) {
  grow(parts_[index_of(place)], floats * sizeof(float));
}

void PeerRanks::reserve_rows(int rows, int cols) {
  const std::size_t stride = static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols);
  if (stride <= row_stride_) {
    return;
  }
  row_stride_ = stride;
  row_counts_.ensure(2);
  row_counts_.fill(0);
  RowInboxes inboxes{.rank = rank(),
                     .ranks = size(),
                     .of = {},
                     .stride = stride,
                     .passes = row_counts_.data(),
                     .arrived = row_counts_.data() + 1};
  renew(inboxes_, kRowPlaces * static_cast<std::size_t>(size()) * stride * sizeof(uint2));
  inboxes.of = addresses_of<uint2>(inboxes_);
  row_inboxes_ = winnow::cuda::DeviceBuffer<RowInboxes>(std::span<const RowInboxes>(&inboxes, 1));
}

void* PeerRanks::part(Place place) const {
  return parts_[index_of(place)].of[static_cast<std::size_t>(rank())].get();
}

void PeerRanks::sum(Place place, bool in_16_bits, float* sum, bool add, std::size_t count,
                    cudaStream_t stream) const {
  Parts parts;
  parts.in_16_bits = in_16_bits;
  std::ranges::transform(parts_[index_of(place)].of, parts.of.begin(),
                         [](const auto& memory) { return memory.get(); });
  sum_parts(arrivals_, parts, sum, add, count, stream);
}

void PeerRanks::reserve_shared(std::size_t bytes) {
  grow(shared_, bytes);
}

void PeerRanks::reserve_gathered(std::size_t floats) {
  if (floats > gathered_floats_) {
    gathered_floats_ = floats;
    renew(gathered_, rank() == 0 ? floats * sizeof(float) : 0);
  }
}

float* PeerRanks::gathered() const {
  return gathered_.empty() ? nullptr : static_cast<float*>(gathered_.front().get());
}

int PeerRanks::least(int own) const {
  return std::ranges::min(all_values(host_, own));
}

void PeerRanks::gather(const RankColumns& columns, cudaStream_t stream) const {
  gather_columns(arrivals_,
                 {.own = columns.own,
                  .whole = gathered(),
                  .rows = columns.rows,
                  .cols = columns.cols(rank()),
                  .first = columns.first(rank()),
                  .stride = columns.all_cols()},
                 stream);
}

}  // namespace winnow::parallel::cuda
