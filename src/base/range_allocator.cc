#include "base/range_allocator.h"

#include <cassert>

namespace winnow {

std::optional<std::size_t> RangeAllocator::take(std::size_t bytes) {
  assert(bytes > 0);
  std::size_t begin = 0;
  for (const auto& [next, end] : ends_) {
    if (next - begin >= bytes) {
      break;
    }
    begin = end;
  }
  if (size_ - begin < bytes) {
    return std::nullopt;
  }
  ends_[begin] = begin + bytes;
  used_ += bytes;
  return begin;
}

void RangeAllocator::give_back(std::size_t begin) {
  const auto range = ends_.find(begin);
  assert(range != ends_.end());
  used_ -= range->second - begin;
  ends_.erase(range);
}

}  // namespace winnow
