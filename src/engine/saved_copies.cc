#include "engine/saved_copies.h"

#include <utility>

namespace winnow::engine {
namespace {

class SavedCopy : public HostCopy {
 public:
  SavedCopy(kvcache::SavedSequence saved, std::size_t& used)
      : saved_(std::move(saved)), used_(used) {
    used_ += kvcache::bytes_of(saved_);
  }
  ~SavedCopy() override { used_ -= kvcache::bytes_of(saved_); }
  SavedCopy(const SavedCopy&) = delete;
  SavedCopy& operator=(const SavedCopy&) = delete;

  [[nodiscard]] int length() const override { return saved_.length; }
  [[nodiscard]] kvcache::SavedSequence save() const override { return saved_; }
  [[nodiscard]] const kvcache::SavedSequence& saved() const { return saved_; }

 private:
  kvcache::SavedSequence saved_;
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

  std::unique_ptr<SequenceState> restore(const kvcache::SequenceLimits& limits,
                                         const HostCopy& copy) override {
    return runner_.restore(limits, static_cast<const SavedCopy&>(copy).saved());
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

}  // namespace winnow::engine
