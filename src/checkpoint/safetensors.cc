#include "checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "checkpoint/json.h"
#include "checkpoint/lfs_pointer.h"

namespace winnow {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors is little-endian");

constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the reference implementation's limit
constexpr const char* kMetadataKey = "__metadata__";

struct ElementType {
  std::string_view name;
  std::size_t bytes;
  std::optional<DType> usable_as;
};

constexpr std::array<ElementType, 17> kElementTypes{{
    {"F32", 4, DType::f32},
    {"F16", 2, DType::f16},
    {"BF16", 2, DType::bf16},
    {"F8_E4M3", 1, DType::f8e4m3},
    {"I8", 1, DType::i8},
    {"I32", 4, DType::i32},
    {"I64", 8, DType::i64},
    {"F64", 8, DType::f32},  // make_view() converts them
    {"F8_E5M2", 1, std::nullopt},
    {"F8_E8M0", 1, std::nullopt},
    {"C64", 8, std::nullopt},
    {"U8", 1, std::nullopt},
    {"I16", 2, std::nullopt},
    {"U16", 2, std::nullopt},
    {"U32", 4, std::nullopt},
    {"U64", 8, std::nullopt},
    {"BOOL", 1, std::nullopt},
}};

/// One tensor of the header; offsets are relative to the end of the header.
struct Entry {
  std::string name;
  const ElementType* type = nullptr;
  Shape shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

const ElementType& read_type(const JsonObject& entry) {
  const std::string name = entry.text("dtype", "");
  for (const ElementType& type : kElementTypes) {
    if (type.name == name) {
      return type;
    }
  }
  entry.reject("dtype", "a safetensors element type such as \"F32\", \"F16\" or \"BF16\"");
}

/// Reads the shape. Checks that elements * size does not overflow, and returns that product.
std::uint64_t read_shape(const JsonObject& entry, std::size_t element_bytes, Shape& shape) {
  const nlohmann::json* sizes = entry.find("shape");
  if (sizes == nullptr || !sizes->is_array()) {
    entry.reject("shape", "an array of sizes");
  }
  std::int64_t bytes = static_cast<std::int64_t>(element_bytes);
  for (const auto& size : *sizes) {
    require(size.is_number_unsigned(), "{}: shape: expected sizes of at least 0, got {}",
            entry.where(), described(size));
    std::int64_t dimension = 0;
    const auto value = size.get<std::uint64_t>();
    require(!__builtin_add_overflow(value, std::uint64_t{0}, &dimension) &&
                !__builtin_mul_overflow(bytes, dimension, &bytes),
            "{}: shape: the tensor's size overflows 64 bits", entry.where());
    shape.push_back(dimension);
  }
  return static_cast<std::uint64_t>(bytes);
}

void read_offsets(const JsonObject& header, Entry& entry, std::uint64_t data_bytes) {
  const nlohmann::json* offsets = header.find("data_offsets");
  if (offsets == nullptr || !offsets->is_array() || offsets->size() != 2 ||
      !(*offsets)[0].is_number_unsigned() || !(*offsets)[1].is_number_unsigned()) {
    header.reject("data_offsets", "an array of two offsets of at least 0");
  }
  entry.begin = (*offsets)[0].get<std::uint64_t>();
  entry.end = (*offsets)[1].get<std::uint64_t>();
  require(entry.begin <= entry.end, "{}: data_offsets: expected begin <= end, got [{}, {}]",
          header.where(), entry.begin, entry.end);
  require(entry.end <= data_bytes,
          "{}: data_offsets [{}, {}] reach beyond the {} bytes of data in the file (truncated?)",
          header.where(), entry.begin, entry.end, data_bytes);
}

Entry read_entry(const std::string& file, const std::string& name, const nlohmann::json& value,
                 std::uint64_t data_bytes) {
  const JsonObject header(value, fmt::format("{}: tensor {}", file, in_quotes(name)));
  Entry entry;
  entry.name = name;
  entry.type = &read_type(header);
  const std::uint64_t bytes = read_shape(header, entry.type->bytes, entry.shape);
  read_offsets(header, entry, data_bytes);
  require(entry.end - entry.begin == bytes,
          "{}: data_offsets [{}, {}] hold {} bytes, expected {} for {} of shape [{}]",
          header.where(), entry.begin, entry.end, entry.end - entry.begin, bytes, entry.type->name,
          fmt::join(entry.shape, ", "));
  return entry;
}

std::map<std::string, std::string> read_metadata(const std::string& file,
                                                 const nlohmann::json& value) {
  const std::string where = file + ": " + kMetadataKey;
  const JsonObject object(value, where);
  std::map<std::string, std::string> metadata;
  for (const auto& [key, text] : value.items()) {
    require(text.is_string(), "{}: {}: expected a string, got {}", where, in_quotes(key),
            described(text));
    metadata[key] = text.get<std::string>();
  }
  return metadata;
}

/// Checks that the tensors cover each byte of the data exactly once.
void check_coverage(const std::string& file, std::vector<Entry>& entries,
                    std::uint64_t data_bytes) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  std::uint64_t position = 0;
  const Entry* previous = nullptr;
  for (const Entry& entry : entries) {
    require(entry.begin >= position, "{}: tensor {} at [{}, {}] overlaps tensor {} at [{}, {}]",
            file, in_quotes(entry.name), entry.begin, entry.end,
            in_quotes(previous == nullptr ? "" : previous->name),
            previous == nullptr ? 0 : previous->begin, position);
    require(entry.begin == position,
            "{}: tensor {} begins at offset {}, expected {}: the bytes between belong to no tensor",
            file, in_quotes(entry.name), entry.begin, position);
    position = entry.end;
    previous = &entry;
  }
  require(position == data_bytes, "{}: the tensors end at offset {}, but the data has {} bytes",
          file, position, data_bytes);
}

/// The header's JSON text; checks its length.
std::string_view header_text(std::span<const std::byte> bytes, const std::string& file) {
  reject_lfs_pointer({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, file);
  require(bytes.size() >= kLengthBytes,
          "{}: truncated: {} bytes, expected at least the {} of a safetensors header length", file,
          bytes.size(), kLengthBytes);
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  require(length <= kMaxHeaderBytes,
          "{}: header length {} is larger than the {} bytes safetensors allows (is this a "
          "safetensors file?)",
          file, length, kMaxHeaderBytes);
  require(length <= bytes.size() - kLengthBytes,
          "{}: truncated: the header is {} bytes long, but only {} follow its length", file, length,
          bytes.size() - kLengthBytes);
  const auto* text = reinterpret_cast<const char*>(bytes.data() + kLengthBytes);
  require(length > 0 && text[0] == '{', "{}: expected the header to begin with '{{'", file);
  return {text, static_cast<std::size_t>(length)};
}

/// Converts `count` doubles to floats.
Buffer<std::byte> narrowed(const std::byte* doubles, std::size_t count) {
  Buffer<std::byte> floats(std::max(count, std::size_t{1}) * sizeof(float));
  for (std::size_t i = 0; i < count; ++i) {
    double value = 0;
    std::memcpy(&value, doubles + i * sizeof value, sizeof value);
    const auto narrow = static_cast<float>(value);
    std::memcpy(floats.data() + i * sizeof narrow, &narrow, sizeof narrow);
  }
  return floats;
}

TensorView make_view(const Entry& entry, std::span<const std::byte> data,
                     SafetensorsContent& content) {
  TensorView view{*entry.type->usable_as, entry.shape, data.data() + entry.begin};
  if (entry.type->bytes != dtype_size(view.dtype)) {  // F64
    content.copies.push_back(narrowed(view.data, (entry.end - entry.begin) / entry.type->bytes));
    view.data = content.copies.back().data();
  } else if (reinterpret_cast<std::uintptr_t>(view.data) % entry.type->bytes != 0) {
    // Legal, though unusual (an odd header length); typed access needs alignment, so make a copy.
    const std::size_t bytes = entry.end - entry.begin;
    Buffer<std::byte>& copy = content.copies.emplace_back(std::max<std::size_t>(bytes, 1));
    std::memcpy(copy.data(), view.data, bytes);
    view.data = copy.data();
  }
  return view;
}

}  // namespace

std::optional<std::uint64_t> safetensors_header_size(std::span<const std::byte> start) {
  if (start.size() < kLengthBytes) {
    return std::nullopt;
  }
  std::uint64_t length = 0;
  std::memcpy(&length, start.data(), kLengthBytes);
  return kLengthBytes + std::min(length, kMaxHeaderBytes);
}

SafetensorsContent parse_safetensors(std::span<const std::byte> bytes, const std::string& name) {
  const std::string_view text = header_text(bytes, name);
  const auto data = bytes.subspan(kLengthBytes + text.size());
  const nlohmann::json header = parse_json(text, name + ": header");
  SafetensorsContent content;
  std::vector<Entry> entries;
  for (const auto& [key, value] : header.items()) {
    if (key == kMetadataKey) {
      content.metadata = read_metadata(name, value);
    } else {
      entries.push_back(read_entry(name, key, value, data.size()));
    }
  }
  check_coverage(name, entries, data.size());
  for (const Entry& entry : entries) {
    if (entry.type->usable_as) {
      content.tensors.emplace(entry.name, make_view(entry, data, content));
    } else {
      content.unusable.emplace(entry.name,
                               StoredTensor{std::string(entry.type->name), entry.shape,
                                            data.data() + entry.begin, entry.end - entry.begin});
    }
  }
  return content;
}

std::optional<StoredTensor> find_stored(const SafetensorsContent& content, std::string_view name) {
  if (const auto found = content.tensors.find(name); found != content.tensors.end()) {
    const TensorView& view = found->second;
    const auto* type = std::ranges::find(kElementTypes, view.dtype, &ElementType::usable_as);
    return StoredTensor{std::string(type->name), view.shape, view.data, view.bytes()};
  }
  const auto found = content.unusable.find(name);
  return found == content.unusable.end() ? std::nullopt : std::optional(found->second);
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : path_(path), file_(path), content_(parse_safetensors(file_.bytes(), path.string())) {}

bool SafetensorsFile::holds(std::string_view name) const {
  return content_.tensors.find(name) != content_.tensors.end() ||
         content_.unusable.find(name) != content_.unusable.end();
}

const TensorView& SafetensorsFile::tensor(std::string_view name) const {
  if (const auto found = content_.tensors.find(name); found != content_.tensors.end()) {
    return found->second;
  }
  const auto unusable = content_.unusable.find(name);
  require(unusable == content_.unusable.end(),
          "{}: tensor {} has type {}, expected F64, F32, F16, BF16, F8_E4M3, I8, I32 or I64",
          path_.string(), in_quotes(name),
          unusable == content_.unusable.end() ? "" : unusable->second.type);
  fail("{}: tensor {} is missing", path_.string(), in_quotes(name));
}

}  // namespace winnow
