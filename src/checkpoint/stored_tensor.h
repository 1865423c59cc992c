// A tensor as a checkpoint's file stores it, of any type.
#pragma once

#include <cstddef>
#include <string>

#include "base/tensor.h"

namespace winnow {

/// A view of bytes that a mapped file keeps alive.
struct StoredTensor {
  std::string type;  // safetensors' name: "U8", "F8_E4M3", ...
  Shape shape;
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
};

}  // namespace winnow
