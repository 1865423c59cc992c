#include "ops/context.h"

#include <algorithm>

namespace winnow::ops {

std::byte* Workspace::take_bytes(std::size_t bytes) {
  constexpr std::size_t kSmallestBlock = std::size_t{1} << 20;
  const std::size_t rounded = (bytes + 63) / 64 * 64;
  while (block_ < blocks_.size() && used_ + rounded > blocks_[block_].size()) {
    ++block_;
    used_ = 0;
  }
  if (block_ == blocks_.size()) {
    blocks_.emplace_back(std::max(rounded, kSmallestBlock));
  }
  std::byte* result = blocks_[block_].data() + used_;
  used_ += rounded;
  return result;
}

std::size_t Workspace::bytes() const {
  std::size_t total = 0;
  for (const auto& block : blocks_) {
    total += block.bytes();
  }
  return total;
}

}  // namespace winnow::ops
