#include <algorithm>
#include <utility>

#include "base/error.h"
#include "checkpoint/json.h"
#include "checkpoint/safetensors.h"

namespace winnow {
namespace {

// The format asks for 8; a cache line costs nothing and keeps the first tensor aligned for SIMD.
constexpr std::size_t kDataAlignment = 64;

std::string_view safetensors_name(DType type) {
  switch (type) {
    case DType::f32:
      return "F32";
    case DType::f16:
      return "F16";
    case DType::bf16:
      return "BF16";
    case DType::f8e4m3:
      return "F8_E4M3";
    case DType::i8:
      return "I8";
    case DType::i32:
      return "I32";
    case DType::i64:
      return "I64";
  }
  return "";
}

using Item = TensorMap::const_pointer;

/// Largest elements first, so that every tensor is aligned to its element size; then by name.
std::vector<Item> file_order(const TensorMap& tensors) {
  std::vector<Item> items;
  for (const auto& item : tensors) {
    items.push_back(&item);
  }
  std::stable_sort(items.begin(), items.end(), [](Item a, Item b) {
    return dtype_size(a->second.dtype) > dtype_size(b->second.dtype);
  });
  return items;
}

/// The eight length bytes and the header, padded with spaces.
std::string make_header(const std::vector<Item>& items,
                        const std::map<std::string, std::string>& metadata,
                        const std::string& file) {
  nlohmann::json header = nlohmann::json::object();
  if (!metadata.empty()) {
    header["__metadata__"] = metadata;
  }
  std::size_t position = 0;
  for (const Item item : items) {
    const TensorView& tensor = item->second;
    header[item->first] = {{"dtype", safetensors_name(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {position, position + tensor.bytes()}}};
    position += tensor.bytes();
  }
  try {
    std::string text = header.dump();
    const std::size_t unpadded = sizeof(std::uint64_t) + text.size();
    text.append((kDataAlignment - unpadded % kDataAlignment) % kDataAlignment, ' ');
    const std::uint64_t length = text.size();
    return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
  } catch (const nlohmann::json::exception&) {
    fail("{}: a tensor's name or the metadata is not valid UTF-8", file);
  }
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, const TensorMap& tensors,
                       const std::map<std::string, std::string>& metadata, FileAccess access) {
  const std::vector<Item> items = file_order(tensors);
  AtomicFile file(path, access);
  file.write(make_header(items, metadata, path.string()));
  for (const Item item : items) {
    file.write({item->second.data, item->second.bytes()});
  }
  file.commit();
}

}  // namespace winnow
