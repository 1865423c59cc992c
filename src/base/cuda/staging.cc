#include "base/cuda/staging.h"

#include <cassert>
#include <optional>
#include <utility>

namespace winnow::cuda {

Staging::~Staging() {
  cudaStreamSynchronize(stream_.get());
}

std::byte* Staging::take(std::size_t bytes) {
  const std::size_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  std::optional<std::size_t> begin = ranges_.take(whole);
  while (!begin) {
    assert(!copies_.empty());
    finish_oldest();
    begin = ranges_.take(whole);
  }
  return memory_.data() + *begin;
}

void Staging::send(const std::byte* from, std::size_t bytes, std::byte* to, cudaStream_t stream) {
  Event written;
  written.record(stream);
  written.hold(stream_);
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_.get()),
        "copy to the host's memory");
  Copy copy{{}, static_cast<std::size_t>(from - memory_.data())};
  copy.done.record(stream_);
  copies_.push_back(std::move(copy));
}

void Staging::wait(std::int64_t count) {
  while (done_ < count) {
    finish_oldest();
  }
}

void Staging::finish_oldest() {
  copies_.front().done.wait();
  ranges_.give_back(copies_.front().begin);
  copies_.pop_front();
  ++done_;
}

}  // namespace winnow::cuda
