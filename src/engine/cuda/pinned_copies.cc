#include "engine/cuda/pinned_copies.h"

#include <utility>

#include "base/error.h"

namespace winnow::engine {
namespace {

using kvcache::cuda::DeviceCache;
using kvcache::cuda::PageCopy;

constexpr std::size_t kAlignment = 256;  // of a copy in the memory

winnow::cuda::PinnedBuffer<std::byte> lock_memory(std::size_t bytes) {
  try {
    return winnow::cuda::PinnedBuffer<std::byte>(bytes);
  } catch (const Error& error) {
    fail("--host-gib: {} bytes cannot be had: {}", bytes, error.what());
  }
}

}  // namespace

class PinnedCopies::Copy : public HostCopy {
 public:
  Copy(PinnedCopies& owner, PageCopy copy, std::size_t begin)
      : owner_(owner), copy_(std::move(copy)), begin_(begin) {}
  ~Copy() override { owner_.ranges_.give_back(begin_); }
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;

  [[nodiscard]] int length() const override { return copy_.tables.length; }
  [[nodiscard]] kvcache::SavedSequence save() const override {
    return owner_.cache_.save(copy_, memory());
  }
  [[nodiscard]] const PageCopy& pages() const { return copy_; }
  [[nodiscard]] std::byte* memory() const { return owner_.memory_.data() + begin_; }

 private:
  PinnedCopies& owner_;
  PageCopy copy_;
  std::size_t begin_;
};

PinnedCopies::PinnedCopies(DeviceCache& cache, std::size_t max_bytes)
    : cache_(cache), memory_(lock_memory(max_bytes)), ranges_(max_bytes) {}

std::unique_ptr<HostCopy> PinnedCopies::copy(int slot, const HostCopies::FreeSome& free_some,
                                             cudaStream_t stream) {
  PageCopy pages = cache_.describe(slot, stream);
  const std::size_t bytes = (cache_.memory_of(pages) + kAlignment - 1) / kAlignment * kAlignment;
  if (bytes > ranges_.size()) {
    return nullptr;
  }
  std::optional<std::size_t> begin = ranges_.take(bytes);
  while (!begin && free_some()) {
    begin = ranges_.take(bytes);
  }
  if (!begin) {
    return nullptr;
  }
  auto copy = std::make_unique<Copy>(*this, std::move(pages), *begin);
  cache_.copy_out(slot, copy->pages(), copy->memory(), stream);
  return copy;
}

std::optional<int> PinnedCopies::restore(const kvcache::SequenceLimits& limits,
                                         const HostCopy& copy, cudaStream_t stream) {
  const auto& from = static_cast<const Copy&>(copy);
  return cache_.copy_in(limits, from.pages(), from.memory(), stream);
}

}  // namespace winnow::engine
