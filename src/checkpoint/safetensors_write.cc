#include <algorithm>
#include <utility>

#include "base/error.h"
#include "checkpoint/json.h"
#include "checkpoint/json_text.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_stream.h"

namespace winnow {
namespace {

// The format requires 8; a cache line is almost free and aligns the first tensor for SIMD.
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

using Item = TensorParts::const_pointer;

/// A view with a tensor's type and whole shape.
TensorView whole(const Item& item) {
  const std::vector<TensorView>& parts = item->second;
  TensorView all = parts.front();
  for (std::size_t i = 1; i < parts.size(); ++i) {
    require(parts[i].dtype == all.dtype, "tensor {}: its parts are {} and {}, expected one type",
            in_quotes(item->first), dtype_name(all.dtype), dtype_name(parts[i].dtype));
    all.shape.front() += parts[i].shape.front();
  }
  return all;
}

/// Sorts by element size, largest first, so that every tensor is aligned to it; then by name.
std::vector<Item> file_order(const TensorParts& tensors) {
  std::vector<Item> items;
  for (const auto& item : tensors) {
    items.push_back(&item);
  }
  std::stable_sort(items.begin(), items.end(), [](Item a, Item b) {
    return dtype_size(a->second.front().dtype) > dtype_size(b->second.front().dtype);
  });
  return items;
}

/// Builds the eight length bytes and the header, padded with spaces.
std::string make_header(const std::vector<Item>& items,
                        const std::map<std::string, std::string>& metadata,
                        const std::string& file) {
  nlohmann::json header = nlohmann::json::object();
  if (!metadata.empty()) {
    header["__metadata__"] = metadata;
  }
  std::size_t position = 0;
  for (const Item item : items) {
    const TensorView tensor = whole(item);
    header[item->first] = {{"dtype", safetensors_name(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {position, position + tensor.bytes()}}};
    position += tensor.bytes();
  }
  try {
    std::string text = json_text(header);
    const std::size_t unpadded = sizeof(std::uint64_t) + text.size();
    text.append((kDataAlignment - unpadded % kDataAlignment) % kDataAlignment, ' ');
    const std::uint64_t length = text.size();
    return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
  } catch (const nlohmann::json::exception&) {
    fail("{}: a tensor's name or the metadata is not valid UTF-8", file);
  }
}

TensorParts in_one_part(const TensorMap& tensors) {
  TensorParts parts;
  for (const auto& [name, tensor] : tensors) {
    parts[name] = {tensor};
  }
  return parts;
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, const TensorMap& tensors,
                       const std::map<std::string, std::string>& metadata, FileAccess access) {
  write_safetensors(path, in_one_part(tensors), metadata, access);
}

std::string safetensors_image(const TensorMap& tensors,
                              const std::map<std::string, std::string>& metadata) {
  const TensorParts parts = in_one_part(tensors);
  const std::vector<Item> items = file_order(parts);
  std::string image = make_header(items, metadata, "image");
  std::size_t bytes = image.size();
  for (const auto& [_, tensor] : tensors) {
    bytes += tensor.bytes();
  }
  image.reserve(bytes);
  for (const Item item : items) {
    const TensorView& tensor = item->second.front();
    image.append(reinterpret_cast<const char*>(tensor.data), tensor.bytes());
  }
  return image;
}

void write_safetensors(const std::filesystem::path& path, const TensorParts& tensors,
                       const std::map<std::string, std::string>& metadata, FileAccess access) {
  const std::vector<Item> items = file_order(tensors);
  AtomicFile file(path, access);
  file.write(make_header(items, metadata, path.string()));
  for (const Item item : items) {
    for (const TensorView& part : item->second) {
      file.write({part.data, part.bytes()});
    }
  }
  file.commit();
}

void stream_safetensors(const std::filesystem::path& path, const TensorMap& tensors,
                        const std::map<std::string, std::string>& metadata,
                        const WriteData& write_data) {
  const TensorParts parts = in_one_part(tensors);
  AtomicFile file(path);
  file.write(make_header(file_order(parts), metadata, path.string()));
  for (const Item item : file_order(parts)) {
    std::size_t missing = item->second.front().bytes();
    write_data(item->first, [&](std::span<const std::byte> bytes) {
      require(bytes.size() <= missing, "{}: tensor {} has more bytes than its shape", path.string(),
              in_quotes(item->first));
      missing -= bytes.size();
      file.write(bytes);
    });
    require(missing == 0, "{}: tensor {} lacks {} bytes", path.string(), in_quotes(item->first),
            missing);
  }
  file.commit();
}

}  // namespace winnow
