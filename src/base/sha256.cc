#include "base/sha256.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/sha256_compress.h"

namespace winnow {

void Sha256::update(std::span<const std::byte> bytes) {
  bytes_ += bytes.size();
  if (pending_size_ > 0) {
    const std::size_t count = std::min(bytes.size(), pending_.size() - pending_size_);
    std::copy_n(bytes.begin(), count,
                pending_.begin() + static_cast<std::ptrdiff_t>(pending_size_));
    pending_size_ += count;
    bytes = bytes.subspan(count);
    if (pending_size_ < pending_.size()) {
      return;
    }
    compress(state_, pending_.data());
    pending_size_ = 0;
  }
  for (; bytes.size() >= pending_.size(); bytes = bytes.subspan(pending_.size())) {
    compress(state_, bytes.data());
  }
  std::ranges::copy(bytes, pending_.begin());
  pending_size_ = bytes.size();
}

std::string Sha256::finish() {
  const std::uint64_t bits = bytes_ * 8;
  std::array<std::byte, 72> padding{};
  padding[0] = std::byte{0x80};
  const std::size_t zeros = (119 - bytes_ % 64) % 64;  // the length's 8 bytes end the block
  for (int i = 0; i < 8; ++i) {
    padding[1 + zeros + static_cast<std::size_t>(i)] =
        static_cast<std::byte>(bits >> (56 - 8 * i) & 0xFF);
  }
  update(std::span(padding).first(1 + zeros + 8));
  std::string digest;
  for (const std::uint32_t word : state_) {
    digest += fmt::format("{:08x}", word);
  }
  return digest;
}

}  // namespace winnow
