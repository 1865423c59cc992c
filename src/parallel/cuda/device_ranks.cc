#include "parallel/cuda/device_ranks.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace winnow::parallel::cuda {
namespace {

std::size_t index_of(DeviceRanks::Place place) {
  return static_cast<std::size_t>(place);
}

}  // namespace

DeviceRanks::DeviceRanks(Communicator& host, int device) : host_(host) {
  require(size() <= kMostRanks, "--tensor-parallel {}: at most {} devices", size(), kMostRanks);
  allow_access(device);
  const auto flags = renew(flags_, std::size_t{kMostRanks} * kMostBlocks * sizeof(std::uint32_t));
  epochs_.ensure(kMostBlocks);
  epochs_.fill(0);
  arrivals_ = {.rank = rank(), .ranks = size(), .flags = {}, .epochs = epochs_.data()};
  std::ranges::transform(flags, arrivals_.flags.begin(),
                         [](void* memory) { return static_cast<std::uint32_t*>(memory); });
}

void DeviceRanks::allow_access(int device) const {
  for (void* shown : exchange(reinterpret_cast<void*>(static_cast<std::intptr_t>(device)))) {
    const auto peer = static_cast<int>(reinterpret_cast<std::intptr_t>(shown));
    if (peer == device) {
      continue;
    }
    int can = 0;
    winnow::cuda::check(cudaDeviceCanAccessPeer(&can, device, peer), "look for peer devices");
    require(can != 0, "--tensor-parallel {}: device {} cannot read the memory of device {}", size(),
            device, peer);
    if (const cudaError_t code = cudaDeviceEnablePeerAccess(peer, 0);
        code != cudaErrorPeerAccessAlreadyEnabled) {
      winnow::cuda::check(code, "read a peer device's memory");
    }
    cudaGetLastError();  // forget that it was enabled before
  }
}

std::vector<void*> DeviceRanks::exchange(void* own) const {
  std::vector<void*> all(static_cast<std::size_t>(size()));
  const auto shown = host_.gather(std::as_bytes(std::span(&own, 1)));
  for (std::size_t i = 0; i < shown.size(); ++i) {
    std::memcpy(&all[i], shown[i].data(), sizeof(void*));
  }
  host_.broadcast(std::as_writable_bytes(std::span(all)));
  return all;
}

std::vector<void*> DeviceRanks::renew(Bytes& own, std::size_t bytes) {
  ++generation_;
  if (own.size() > 0) {  // which others may still read
    winnow::cuda::check(cudaDeviceSynchronize(), "wait for a device");
    host_.meet();
  }
  own.ensure(bytes);
  own.fill(0);
  return exchange(own.data());
}

void DeviceRanks::reserve_parts(std::size_t floats) {
  const std::size_t bytes = floats * sizeof(float);
  if (bytes <= parts_[0].size()) {
    return;
  }
  for (std::size_t i = 0; i < kPlaces; ++i) {
    std::ranges::copy(renew(parts_[i], bytes), addresses_[i].of.begin());
  }
}

void DeviceRanks::reserve_rows(int rows, int cols) {
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
  const std::size_t pairs = kPlaces * static_cast<std::size_t>(size()) * stride;
  std::ranges::transform(renew(inboxes_, pairs * sizeof(uint2)), inboxes.of.begin(),
                         [](void* memory) { return static_cast<uint2*>(memory); });
  row_inboxes_ = winnow::cuda::DeviceBuffer<RowInboxes>(std::span<const RowInboxes>(&inboxes, 1));
}

void* DeviceRanks::part(Place place) const {
  return parts_[index_of(place)].data();
}

void DeviceRanks::sum(Place place, bool in_16_bits, float* sum, bool add, std::size_t count,
                      cudaStream_t stream) const {
  Parts parts = addresses_[index_of(place)];
  parts.in_16_bits = in_16_bits;
  sum_parts(arrivals_, parts, sum, add, count, stream);
}

float* DeviceRanks::share_of_first(float* whole) const {
  return static_cast<float*>(exchange(whole).front());
}

void DeviceRanks::gather(const GatheredColumns& columns, cudaStream_t stream) const {
  gather_columns(arrivals_, columns, stream);
}

}  // namespace winnow::parallel::cuda
