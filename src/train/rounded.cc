#include "train/rounded.h"

namespace winnow::train {

Buffer<std::byte> rounded(std::span<const float> values, DType type) {
  Buffer<std::byte> memory(values.size() * dtype_size(type));
  for (std::size_t i = 0; i < values.size(); ++i) {
    switch (type) {
      case DType::bf16:
        reinterpret_cast<bf16*>(memory.data())[i] = to_bf16(values[i]);
        break;
      case DType::f16:
        reinterpret_cast<f16*>(memory.data())[i] = to_f16(values[i]);
        break;
      default:
        reinterpret_cast<float*>(memory.data())[i] = values[i];
    }
  }
  return memory;
}

}  // namespace winnow::train
