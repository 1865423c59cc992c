// Any bytes as a GGUF file: an Error, or tensors that are really there, each of whose blocks can be
// decoded.
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "checkpoint/gguf/block_formats.h"
#include "checkpoint/gguf/gguf_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto content = winnow::gguf::parse(std::as_bytes(std::span(data, size)), "m.gguf");
    for (const auto& [name, tensor] : content.tensors) {
      const auto& format = winnow::gguf::block_format(tensor.type, name);
      std::vector<float> values(static_cast<std::size_t>(format.elements));
      for (std::size_t at = 0; at < tensor.bytes.size();
           at += static_cast<std::size_t>(format.bytes)) {
        format.decode(tensor.bytes.data() + at, values.data());
      }
    }
  } catch (const winnow::Error&) {
    // The only exception that may come out.
  }
  return 0;
}
