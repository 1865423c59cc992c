// A kernel that lets its successor begin long before it writes.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace winnow::testing {

struct Copy {
  std::byte* to;
  const std::byte* from;
  std::size_t bytes;
};
inline constexpr int kCopies = 5;
struct Copies {
  Copy each[kCopies];
};

/// Waits for its predecessor, lets its successor begin, sleeps, copies.
void launch_late_copy(const Copies& copies, cudaStream_t stream);

}  // namespace winnow::testing
