#include "engine/saved_copies.h"

#include <cstdint>
#include <optional>
#include <utility>

namespace winnow::engine {
namespace {

class SavedCopy : public HostCopy {
 public:
  SavedCopy(kvcache::SavedSequence saved, std::size_t& used)
      : saved_(std::move(saved)), sum_(kvcache::checksum(saved_)), used_(used) {
    used_ += kvcache::bytes_of(saved_);
  }
  ~SavedCopy() override { used_ -= kvcache::bytes_of(saved_); }
  SavedCopy(const SavedCopy&) = delete;
  SavedCopy& operator=(const SavedCopy&) = delete;

  [[nodiscard]] int length() const override { return saved_.length; }
  [[nodiscard]] std::optional<kvcache::SavedSequence> save() const override {
    return is_damaged() ? std::nullopt : std::optional(saved_);
  }
  [[nodiscard]] bool is_damaged() const { return kvcache::checksum(saved_) != sum_; }
  [[nodiscard]] const kvcache::SavedSequence& saved() const { return saved_; }
  [[nodiscard]] std::span<std::byte> entries() { return saved_.entries; }

 private:
  kvcache::SavedSequence saved_;
  std::uint64_t sum_;
  std::size_t& used_;
};

class SavedCopies : public HostCopies {
 public:
  SavedCopies(Runner& runner, std::size_t max_bytes) : runner_(runner), max_bytes_(max_bytes) {}

  std::unique_ptr<HostCopy> copy(const SequenceState& sequence,
                                 const FreeSome& free_some) override {
    kvcache::SavedSequence saved = sequence.save();
    const std::size_t bytes = kvcache::bytes_of(saved);
    if (bytes > max_bytes_) {
      return nullptr;
    }
    while (used_ + bytes > max_bytes_) {
      if (!free_some()) {
        return nullptr;
      }
    }
    return std::make_unique<SavedCopy>(std::move(saved), used_);
  }

  RestoredCopy restore(const kvcache::SequenceLimits& limits, const HostCopy& copy) override {
    const auto& from = static_cast<const SavedCopy&>(copy);
    if (from.is_damaged()) {
      return {.sequence = nullptr, .damaged = true};
    }
    return {.sequence = runner_.restore(limits, from.saved())};
  }

  [[nodiscard]] std::size_t used_bytes() const override { return used_; }

 private:
  Runner& runner_;
  std::size_t max_bytes_;
  std::size_t used_ = 0;
};

}  // namespace

std::unique_ptr<HostCopies> make_saved_copies(Runner& runner, std::size_t max_bytes) {
  return std::make_unique<SavedCopies>(runner, max_bytes);
}

std::span<std::byte> entries_of(HostCopy& copy) {
  return static_cast<SavedCopy&>(copy).entries();
}

}  // namespace winnow::engine
