#include "engine/cuda/pinned_copies.h"

#include <cstdint>
#include <optional>
#include <utility>

#include "base/error.h"

namespace winnow::engine {
namespace {

using kvcache::cuda::CopiedIn;
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
  ~Copy() override {
    try {
      wait();
    } catch (const Error&) {
      // The device has failed. The next use reports it.
    }
    owner_.ranges_.give_back(begin_);
  }
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;

  [[nodiscard]] int length() const override { return copy_.tables.length; }
  [[nodiscard]] std::optional<kvcache::SavedSequence> save() const override {
    wait();
    return owner_.cache_.save(copy_, memory());
  }

  /// Sends the pages of the sequence that was described.
  void send(int slot, cudaStream_t stream) {
    owner_.cache_.copy_out(slot, copy_, memory(), owner_.staging_, stream);
    sent_ = owner_.staging_.sent();
  }
  /// Waits until all has arrived.
  void wait() const { owner_.staging_.wait(sent_); }
  [[nodiscard]] const PageCopy& pages() const { return copy_; }
  [[nodiscard]] std::byte* memory() const { return owner_.memory_.data() + begin_; }
  [[nodiscard]] std::size_t bytes() const { return owner_.cache_.memory_of(copy_); }

 private:
  PinnedCopies& owner_;
  PageCopy copy_;
  std::size_t begin_;
  std::int64_t sent_ = 0;  // the number of copies through staging up to the last of its own
};

PinnedCopies::PinnedCopies(DeviceCache& cache, std::size_t max_bytes)
    : cache_(cache),
      memory_(lock_memory(max_bytes)),
      ranges_(max_bytes),
      staging_(std::max(staging_bytes(max_bytes), cache.least_staging())) {}

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
  copy->send(slot, stream);
  return copy;
}

CopiedIn PinnedCopies::restore(const kvcache::SequenceLimits& limits, const HostCopy& copy,
                               cudaStream_t stream) {
  const auto& from = static_cast<const Copy&>(copy);
  from.wait();
  return cache_.copy_in(limits, from.pages(), from.memory(), stream);
}

std::span<std::byte> PinnedCopies::memory_of(const HostCopy& copy) {
  const auto& of = static_cast<const Copy&>(copy);
  of.wait();
  return {of.memory(), of.bytes()};
}

}  // namespace winnow::engine
