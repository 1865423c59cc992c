#include "kvcache/cuda/device_states.h"

#include <cassert>

#include "base/error.h"

namespace winnow::kvcache::cuda {

using winnow::cuda::check;

DeviceStates::DeviceStates(const StateShape& shape, int count)
    : shape_(shape), count_(shape.size() > 0 ? count : 0), memory_(index(count_) * shape.size()) {
  for (int i = count_ - 1; i >= 0; --i) {
    free_.push_back(memory_.data() + index(i) * shape.size());
  }
}

void DeviceStates::resize(int slots) {
  places_.resize(index(slots), nullptr);
  table_ = winnow::cuda::DeviceBuffer<float*>(std::span<float* const>(places_));
}

float* DeviceStates::take(int slot, cudaStream_t stream) {
  assert(!holds(slot));
  require(!free_.empty(), "--kv-gib: no room for the state of another sequence beside {}", count_);
  float*& place = places_[index(slot)];
  place = free_.back();
  free_.pop_back();
  check(
      cudaMemcpyAsync(table_.data() + slot, &place, sizeof(place), cudaMemcpyHostToDevice, stream),
      "place a sequence's state");
  return place;
}

void DeviceStates::ensure(int slot, cudaStream_t stream) {
  if (need(slot) > 0) {
    check(cudaMemsetAsync(take(slot, stream), 0, shape_.bytes(), stream),
          "clear a sequence's state");
  }
}

void DeviceStates::fork(int from, int to, cudaStream_t stream) {
  if (holds(from)) {
    check(cudaMemcpyAsync(take(to, stream), places_[index(from)], shape_.bytes(),
                          cudaMemcpyDeviceToDevice, stream),
          "copy a sequence's state");
  }
}

void DeviceStates::release(int slot) {
  if (holds(slot)) {
    free_.push_back(places_[index(slot)]);
    places_[index(slot)] = nullptr;
  }
}

std::vector<float> DeviceStates::save(int slot, cudaStream_t stream) const {
  std::vector<float> values(holds(slot) ? shape_.size() : 0);
  if (!values.empty()) {
    check(cudaMemcpyAsync(values.data(), places_[index(slot)], shape_.bytes(),
                          cudaMemcpyDeviceToHost, stream),
          "read a sequence's state");
    check(cudaStreamSynchronize(stream), "read a sequence's state");
  }
  return values;
}

void DeviceStates::restore(int slot, std::span<const float> values, cudaStream_t stream) {
  assert(values.size() == shape_.size());
  if (!values.empty()) {
    check(cudaMemcpyAsync(take(slot, stream), values.data(), values.size_bytes(),
                          cudaMemcpyHostToDevice, stream),
          "write a sequence's state");
  }
}

}  // namespace winnow::kvcache::cuda
