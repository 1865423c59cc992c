// Any bytes as a safetensors file: an Error, or views of memory that is really there.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "checkpoint/safetensors.h"

namespace {

/// An input that begins with '{' is a header and, after a zero byte, its data: so the fuzzer can
/// change the header without having to guess its length. Anything else is a file as it is.
std::string image_of(std::string_view input) {
  if (!input.starts_with('{')) {
    return std::string(input);
  }
  const auto end = std::min(input.find('\0'), input.size());
  const std::uint64_t length = end;
  std::string image(reinterpret_cast<const char*>(&length), sizeof length);
  image += input.substr(0, end);
  image += input.substr(std::min(end + 1, input.size()));
  return image;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string image = image_of({reinterpret_cast<const char*>(data), size});
  try {
    const auto content =
        winnow::parse_safetensors(std::as_bytes(std::span(image)), "input.safetensors");
    std::uint8_t sum = 0;
    for (const auto& [name, tensor] : content.tensors) {
      if (reinterpret_cast<std::uintptr_t>(tensor.data) % winnow::dtype_size(tensor.dtype) != 0) {
        std::abort();
      }
      for (const std::byte byte : std::span(tensor.data, tensor.bytes())) {
        sum = static_cast<std::uint8_t>(sum + static_cast<std::uint8_t>(byte));
      }
    }
    volatile std::uint8_t sink = sum;  // keeps the reads
    static_cast<void>(sink);
  } catch (const winnow::Error&) {
    // The only exception that may come out.
  }
  return 0;
}
