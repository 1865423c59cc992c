#include "train/cuda/exchange.h"

#include <algorithm>

namespace winnow::train::cuda {
namespace {

// Elements [begin, end) of another rank's array.
template <class T>
void copy_part(const winnow::cuda::DeviceBuffer<T>& to, const T* from, std::size_t begin,
               std::size_t end, cudaStream_t stream) {
  if (begin < end) {
    winnow::cuda::check(cudaMemcpyAsync(to.data() + begin, from + begin, (end - begin) * sizeof(T),
                                        cudaMemcpyDeviceToDevice, stream),
                        "copy from another device");
  }
}

}  // namespace

Exchange::Exchange(parallel::Communicator& ranks, int device, const Partition& partition,
                   const TrainedWeights& weights)
    : host_(ranks),
      ranks_(ranks, device),
      partition_(partition),
      weights_(weights),
      gradients_(addresses_of(weights.gradient)),
      matrices_(addresses_of(weights.matrices())),
      vectors_(addresses_of(weights.vectors())) {}

template <class T>
std::vector<const T*> Exchange::addresses_of(const winnow::cuda::DeviceBuffer<T>& own) const {
  std::vector<const T*> all;
  for (const void* address : ranks_.exchange(own.data())) {
    all.push_back(static_cast<const T*>(address));
  }
  return all;
}

void Exchange::reduce_gradients(const winnow::cuda::Stream& stream) const {
  stream.synchronize();
  host_.meet();  // all gradients are complete
  parallel::cuda::Parts parts;
  std::ranges::transform(gradients_, parts.of.begin(),
                         [this](const float* gradient) { return gradient + partition_.begin(); });
  parallel::cuda::sum_complete_parts(parts, ranks_.size(),
                                     weights_.gradient.data() + partition_.begin(),
                                     partition_.size(), stream.get());
}

void Exchange::gather_weights(const winnow::cuda::Stream& stream) const {
  stream.synchronize();
  host_.meet();  // all have updated their parts
  const std::size_t matrices = weights_.matrices().size();
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    if (rank == ranks_.rank()) {
      continue;
    }
    const auto r = static_cast<std::size_t>(rank);
    const std::size_t begin = partition_.cuts()[r];
    const std::size_t end = partition_.cuts()[r + 1];
    copy_part(weights_.matrices(), matrices_[r], begin, std::min(end, matrices), stream.get());
    copy_part(weights_.vectors(), vectors_[r], std::max(begin, matrices) - matrices,
              std::max(end, matrices) - matrices, stream.get());
  }
  stream.synchronize();
  host_.meet();  // all have read
}

}  // namespace winnow::train::cuda
