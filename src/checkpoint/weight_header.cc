#include "checkpoint/weight_header.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "checkpoint/gguf/gguf_file.h"
#include "checkpoint/json.h"
#include "checkpoint/safetensors.h"

namespace winnow {
namespace {

constexpr std::string_view kGgufMagic = "GGUF";

bool begins_as_gguf(std::span<const std::byte> start) {
  return start.size() >= kGgufMagic.size() &&
         std::memcmp(start.data(), kGgufMagic.data(), kGgufMagic.size()) == 0;
}

/// Whether a tensor holds integers that QuantizedMatrix::stays_packed() may keep, or describes them
/// (bitsandbytes).
bool is_quantized_to_integers(const std::string& name, std::string_view type) {
  return name.ends_with(".qweight") || (name.ends_with(".weight_packed") && type == "I32") ||
         (name.ends_with(".weight") && type == "I8") ||
         name.find(".quant_state.bitsandbytes__") != std::string::npos;
}

void refuse_integers(std::span<const std::byte> file, const std::string& name) {
  const SafetensorsContent content = parse_safetensors(file, name);
  const auto refuse = [&](const std::string& tensor, std::string_view type) {
    if (is_quantized_to_integers(tensor, type)) {
      throw ValuesNeeded(
          fmt::format("{}: tensor {}: what such weights take in memory depends on their values",
                      name, in_quotes(tensor)));
    }
  };
  for (const auto& [tensor, view] : content.tensors) {
    refuse(tensor, view.dtype == DType::i8 ? "I8" : view.dtype == DType::i32 ? "I32" : "");
  }
  for (const auto& [tensor, stored] : content.unusable) {
    refuse(tensor, stored.type);
  }
}

}  // namespace

std::optional<std::uint64_t> weight_header_size(std::span<const std::byte> start,
                                                const std::string& name) {
  if (begins_as_gguf(start)) {
    return gguf::header_size(start, name);
  }
  return safetensors_header_size(start);
}

std::vector<std::span<const std::byte>> describing_values(std::span<const std::byte> file,
                                                          const std::string& name) {
  std::vector<std::span<const std::byte>> values;
  if (!begins_as_gguf(file)) {
    refuse_integers(file, name);
    return values;
  }
  for (const auto& [tensor, stored] : gguf::parse(file, name).tensors) {
    if (tensor.starts_with("rope_freqs.") || tensor.starts_with("rope_factors_")) {
      values.push_back(stored.bytes);
    }
  }
  return values;
}

}  // namespace winnow
