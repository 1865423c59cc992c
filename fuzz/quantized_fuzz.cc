// Any text as a quantization_config and, after a zero byte, any bytes as a safetensors file: an
// Error, or matrices whose codes and scales are really there.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "checkpoint/quantized/method.h"
#include "checkpoint/safetensors.h"

namespace {

using winnow::quantized::Parts;

constexpr int kRows = 16;
constexpr int kCols = 32;

void read(const std::string& text, std::span<const std::byte> image) {
  const nlohmann::json document = winnow::parse_json(text, "config.json");
  const auto method =
      winnow::quantized::read_method(winnow::JsonObject(document, "quantization_config"));
  const winnow::SafetensorsContent content = winnow::parse_safetensors(image, "input.safetensors");
  const winnow::quantized::FindTensor find =
      [&](const std::string& name) -> std::optional<winnow::StoredTensor> {
    return winnow::find_stored(content, name);
  };
  if (const auto matrix = method->find(Parts(find, "dir", "m", kRows, kCols))) {
    (void)winnow::quantized::dequantized(*matrix, winnow::DType::bf16);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(input.find('\0'), input.size());
  const std::string image(input.substr(std::min(end + 1, input.size())));
  try {
    read(std::string(input.substr(0, end)), std::as_bytes(std::span(image)));
  } catch (const winnow::Error&) {
    // The only exception that may come out.
  }
  return 0;
}
