#include "parallel/cuda/peer_ranks.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace winnow::parallel::cuda {
namespace {

std::size_t index_of(DeviceRanks::Place place) {
  return static_cast<std::size_t>(place);
}

}  // namespace

PeerRanks::PeerRanks(Communicator& host, int device) : host_(host), device_(device) {
  require(size() <= kMostRanks, "{} ranks on CUDA devices: expected at most {}", size(),
          kMostRanks);
  allow_access(device);
  renew(flags_, std::size_t{kMostRanks} * kMostBlocks * sizeof(std::uint32_t));
  epochs_.ensure(kMostBlocks);
  epochs_.fill(0);
  arrivals_ = {.rank = rank(), .ranks = size(), .flags = {}, .epochs = epochs_.data()};
  std::ranges::transform(flags_, arrivals_.flags.begin(), [](const auto& memory) {
    return reinterpret_cast<std::uint32_t*>(memory->data());
  });
}

PeerRanks::~PeerRanks() {
  int current = 0;
  cudaGetDevice(&current);
  cudaSetDevice(device_);
  cudaDeviceSynchronize();
  cudaSetDevice(current);
}

void PeerRanks::allow_access(int device) const {
  for (void* shown : exchange(reinterpret_cast<void*>(static_cast<std::intptr_t>(device)))) {
    const auto peer = static_cast<int>(reinterpret_cast<std::intptr_t>(shown));
    if (peer == device) {
      continue;
    }
    int can = 0;
    winnow::cuda::check(cudaDeviceCanAccessPeer(&can, device, peer), "look for peer devices");
    require(can != 0, "{} ranks: device {} cannot read the memory of device {}", size(), device,
            peer);
    if (const cudaError_t code = cudaDeviceEnablePeerAccess(peer, 0);
        code != cudaErrorPeerAccessAlreadyEnabled) {
      winnow::cuda::check(code, "read a peer device's memory");
    }
    cudaGetLastError();  // clears the error that access was enabled before
  }
}

std::vector<void*> PeerRanks::exchange(void* own) const {
  std::vector<void*> all(static_cast<std::size_t>(size()));
  const auto shown = host_.gather(std::as_bytes(std::span(&own, 1)));
  for (std::size_t i = 0; i < shown.size(); ++i) {
    require(shown[i].size() == sizeof(void*), "rank {} does something else than rank 0", i);
    std::memcpy(&all[i], shown[i].data(), sizeof(void*));
  }
  host_.broadcast(std::as_writable_bytes(std::span(all)));
  return all;
}

void PeerRanks::renew(SharedBytes& all, std::size_t bytes) {
  ++generation_;
  if (!all.empty()) {
    winnow::cuda::check(cudaDeviceSynchronize(), "wait for a device");
    host_.meet();  // no rank reads it any more
    all.clear();
  }
  auto own = std::make_shared<Bytes>(bytes);
  own->fill(0);
  std::shared_ptr<const Bytes> shown = std::move(own);
  for (const void* other : exchange(&shown)) {
    all.push_back(*static_cast<const std::shared_ptr<const Bytes>*>(other));
  }
  host_.meet();  // all ranks have taken it
}

void PeerRanks::reserve_parts(std::size_t floats) {
  const std::size_t bytes = floats * sizeof(float);
  if (bytes > part_bytes_) {
    part_bytes_ = bytes;
    for (SharedBytes& parts : parts_) {
      renew(parts, bytes);
    }
  }
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
  renew(inboxes_, kPlaces * static_cast<std::size_t>(size()) * stride * sizeof(uint2));
  std::ranges::transform(inboxes_, inboxes.of.begin(), [](const auto& memory) {
    return reinterpret_cast<uint2*>(memory->data());
  });
  row_inboxes_ = winnow::cuda::DeviceBuffer<RowInboxes>(std::span<const RowInboxes>(&inboxes, 1));
}

void* PeerRanks::part(Place place) const {
  return parts_[index_of(place)][static_cast<std::size_t>(rank())]->data();
}

void PeerRanks::sum(Place place, bool in_16_bits, float* sum, bool add, std::size_t count,
                    cudaStream_t stream) const {
  Parts parts;
  parts.in_16_bits = in_16_bits;
  std::ranges::transform(parts_[index_of(place)], parts.of.begin(),
                         [](const auto& memory) { return memory->data(); });
  sum_parts(arrivals_, parts, sum, add, count, stream);
}

float* PeerRanks::share_of_first(float* whole, std::size_t /*floats*/) {
  return static_cast<float*>(exchange(whole).front());
}

void PeerRanks::gather(const RankColumns& columns, cudaStream_t stream) const {
  gather_columns(arrivals_,
                 {.own = columns.own,
                  .whole = columns.whole,
                  .rows = columns.rows,
                  .cols = columns.cols(rank()),
                  .first = columns.first(rank()),
                  .stride = columns.all_cols()},
                 stream);
}

}  // namespace winnow::parallel::cuda
