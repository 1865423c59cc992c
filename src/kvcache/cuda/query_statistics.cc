#include "kvcache/cuda/query_statistics.h"

namespace winnow::kvcache::cuda {

using winnow::cuda::check;

void QueryStatistics::open(int slot, std::size_t count, cudaStream_t stream) {
  const auto place = static_cast<std::size_t>(slot);
  if (place >= slots_.size()) {
    slots_.resize(place + 1);
  }
  slots_[place] = winnow::cuda::DeviceBuffer<float>(count);
  check(cudaMemsetAsync(slots_[place].data(), 0, count * sizeof(float), stream),
        "clear statistics of queries");
}

void QueryStatistics::release(int slot) {
  if (has(slot)) {
    slots_[static_cast<std::size_t>(slot)] = {};  // waits for the device
  }
}

void QueryStatistics::fork(int from, int to, cudaStream_t stream) {
  if (has(from)) {
    open(to, size(from), stream);
    check(cudaMemcpyAsync(of(to), of(from), size(from) * sizeof(float), cudaMemcpyDeviceToDevice,
                          stream),
          "copy statistics of queries");
  }
}

void QueryStatistics::restore(int slot, std::span<const float> numbers, cudaStream_t stream) {
  check(cudaMemcpyAsync(of(slot), numbers.data(), numbers.size_bytes(), cudaMemcpyHostToDevice,
                        stream),
        "write statistics of queries");
  check(cudaStreamSynchronize(stream), "write statistics of queries");
}

std::vector<float> QueryStatistics::save(int slot, cudaStream_t stream) const {
  std::vector<float> numbers(size(slot));
  check(cudaMemcpyAsync(numbers.data(), of(slot), numbers.size() * sizeof(float),
                        cudaMemcpyDeviceToHost, stream),
        "read statistics of queries");
  check(cudaStreamSynchronize(stream), "read statistics of queries");
  return numbers;
}

}  // namespace winnow::kvcache::cuda
