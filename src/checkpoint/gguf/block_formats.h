// ggml's tensor types: the storage of a block of weights.
// https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace winnow::gguf {

struct BlockFormat {
  std::uint32_t type = 0;  // ggml's number of the type
  std::string_view name;   // ggml's name: "Q4_K"
  std::int64_t elements = 1;
  std::int64_t bytes = 1;
  /// Decodes the values of one block.
  void (*decode)(const std::byte* block, float* out) = nullptr;
};

/// The format of a type. Throws Error, with `where`, for a type that winnow does not read.
const BlockFormat& block_format(std::uint32_t type, const std::string& where);

/// ggml's numbers of the types without blocks.
inline constexpr std::uint32_t kF32 = 0;
inline constexpr std::uint32_t kF16 = 1;
inline constexpr std::uint32_t kBF16 = 30;

}  // namespace winnow::gguf
