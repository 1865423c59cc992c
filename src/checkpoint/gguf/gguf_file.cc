#include "checkpoint/gguf/gguf_file.h"

#include <array>
#include <cstring>
#include <fstream>

#include "base/error.h"
#include "checkpoint/gguf/block_formats.h"
#include "checkpoint/gguf/split_name.h"
#include "checkpoint/json.h"

namespace winnow::gguf {
namespace {

using nlohmann::json;

constexpr std::string_view kMagic = "GGUF";
constexpr std::uint32_t kOldest = 2;
constexpr std::uint32_t kNewest = 3;
constexpr std::uint64_t kMaxCount = 1U << 20;   // tensors, or keys
constexpr std::uint64_t kMaxArray = 1U << 26;   // elements
constexpr std::uint64_t kMaxString = 1U << 26;  // bytes
constexpr std::uint64_t kMaxAlignment = 1U << 20;
constexpr int kMaxDimensions = 4;
constexpr int kMaxDepth = 4;  // of nested arrays

enum ValueType : std::uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64
};

/// The bytes end too early.
class Truncated : public Error {
 public:
  using Error::Error;
};

/// Reads values one after another.
class Reader {
 public:
  Reader(std::span<const std::byte> bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  [[nodiscard]] std::size_t position() const { return position_; }

  template <class T>
  T read() {
    T value;
    std::memcpy(&value, take(sizeof value), sizeof value);
    return value;
  }
  std::uint64_t count(std::uint64_t highest, const char* what) {
    const auto value = read<std::uint64_t>();
    require(value <= highest, "{}: {} {} at byte {}, expected at most {}", name_, value, what,
            position_ - sizeof value, highest);
    return value;
  }
  std::string string() {
    const std::uint64_t size = count(kMaxString, "bytes of text");
    const auto* text = reinterpret_cast<const char*>(take(size));
    return {text, static_cast<std::size_t>(size)};
  }
  json value(std::uint32_t type, int depth) {
    switch (type) {
      case kUint8:
        return read<std::uint8_t>();
      case kInt8:
        return read<std::int8_t>();
      case kUint16:
        return read<std::uint16_t>();
      case kInt16:
        return read<std::int16_t>();
      case kUint32:
        return read<std::uint32_t>();
      case kInt32:
        return read<std::int32_t>();
      case kFloat32:
        return read<float>();
      case kBool:
        return read<std::uint8_t>() != 0;
      case kString:
        return string();
      case kArray:
        return array(depth);
      case kUint64:
        return read<std::uint64_t>();
      case kInt64:
        return read<std::int64_t>();
      case kFloat64:
        return read<double>();
      default:
        fail("{}: value type {} at byte {} is unknown", name_, type, position_);
    }
  }

 private:
  const std::byte* take(std::uint64_t size) {
    if (size > bytes_.size() - position_) {
      throw Truncated(fmt::format("{}: truncated: {} bytes wanted at byte {} of {}", name_, size,
                                  position_, bytes_.size()));
    }
    const std::byte* at = bytes_.data() + position_;
    position_ += size;
    return at;
  }
  json array(int depth) {
    require(depth < kMaxDepth, "{}: arrays nested deeper than {}", name_, kMaxDepth);
    const auto type = read<std::uint32_t>();
    const std::uint64_t size = count(kMaxArray, "elements");
    json values = json::array();
    for (std::uint64_t i = 0; i < size; ++i) {
      values.push_back(value(type, depth + 1));
    }
    return values;
  }

  std::span<const std::byte> bytes_;
  const std::string& name_;
  std::size_t position_ = 0;
};

struct Entry {
  std::string name;
  Tensor tensor;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
};

Entry read_entry(Reader& reader, const std::string& file) {
  Entry entry;
  entry.name = reader.string();
  const std::string where = fmt::format("{}: tensor {}", file, in_quotes(entry.name));
  const auto dimensions = reader.read<std::uint32_t>();
  require(dimensions <= kMaxDimensions, "{}: {} dimensions, expected at most {}", where, dimensions,
          kMaxDimensions);
  std::int64_t elements = 1;
  for (std::uint32_t i = 0; i < dimensions; ++i) {
    const auto size = reader.read<std::uint64_t>();
    require(size < (1ULL << 48) &&
                !__builtin_mul_overflow(elements, static_cast<std::int64_t>(size), &elements) &&
                elements < (1LL << 56),
            "{}: its size overflows 64 bits", where);
    entry.tensor.shape.insert(entry.tensor.shape.begin(), static_cast<std::int64_t>(size));
  }
  entry.tensor.type = reader.read<std::uint32_t>();
  entry.offset = reader.read<std::uint64_t>();
  const BlockFormat& format = block_format(entry.tensor.type, where);
  const std::int64_t row = entry.tensor.shape.empty() ? 1 : entry.tensor.shape.back();
  require(row % format.elements == 0, "{}: rows of {} are no whole blocks of {}", where, row,
          format.elements);
  entry.size = static_cast<std::uint64_t>(elements / format.elements * format.bytes);
  return entry;
}

std::uint64_t alignment_of(const json& metadata, const std::string& name) {
  const auto found = metadata.find("general.alignment");
  if (found == metadata.end()) {
    return 32;
  }
  require(found->is_number_unsigned() && *found > 0U && *found <= kMaxAlignment,
          "{}: general.alignment: expected a number of bytes, got {}", name, described(*found));
  return found->get<std::uint64_t>();
}

/// The metadata value of a key, or nullptr.
const json* find(const Content& content, const char* key) {
  const auto found = content.metadata.find(key);
  return found == content.metadata.end() ? nullptr : &*found;
}

}  // namespace

namespace {

/// What comes before the tensors' bytes.
struct Header {
  json metadata = json::object();
  std::vector<Entry> entries;
  std::uint64_t size = 0;
};

Header read_header(std::span<const std::byte> bytes, const std::string& name) {
  Reader reader(bytes, name);
  const auto magic = reader.read<std::array<char, 4>>();
  require(std::string_view(magic.data(), magic.size()) == kMagic, "{}: not a GGUF file", name);
  const auto version = reader.read<std::uint32_t>();
  require(version >= kOldest && version <= kNewest, "{}: GGUF version {}, expected {} or {}", name,
          version, kOldest, kNewest);
  const std::uint64_t tensors = reader.count(kMaxCount, "tensors");
  const std::uint64_t keys = reader.count(kMaxCount, "keys");
  Header header;
  for (std::uint64_t i = 0; i < keys; ++i) {
    const std::string key = reader.string();
    const auto type = reader.read<std::uint32_t>();
    header.metadata[key] = reader.value(type, 0);
  }
  for (std::uint64_t i = 0; i < tensors; ++i) {
    header.entries.push_back(read_entry(reader, name));
  }
  header.size = reader.position();
  return header;
}

}  // namespace

std::optional<std::uint64_t> header_size(std::span<const std::byte> start,
                                         const std::string& name) {
  try {
    return read_header(start, name).size;
  } catch (const Truncated&) {
    return std::nullopt;
  }
}

Content parse(std::span<const std::byte> bytes, const std::string& name) {
  Header header = read_header(bytes, name);
  Content content{.metadata = std::move(header.metadata), .tensors = {}};
  const std::uint64_t alignment = alignment_of(content.metadata, name);
  const std::uint64_t data = (header.size + alignment - 1) / alignment * alignment;
  for (Entry& entry : header.entries) {
    require(data <= bytes.size() && entry.offset <= bytes.size() - data &&
                entry.size <= bytes.size() - data - entry.offset,
            "{}: tensor {} reaches beyond the file (truncated?)", name, in_quotes(entry.name));
    entry.tensor.bytes = bytes.subspan(data + entry.offset, entry.size);
    require(content.tensors.emplace(entry.name, entry.tensor).second, "{}: tensor {} appears twice",
            name, in_quotes(entry.name));
  }
  return content;
}

bool is_gguf(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) {
    return false;
  }
  std::array<char, 4> magic{};
  std::ifstream(path, std::ios::binary).read(magic.data(), magic.size());
  return std::string_view(magic.data(), magic.size()) == kMagic;
}

std::vector<std::filesystem::path> split_files(const std::filesystem::path& path) {
  const auto split = parse_split_name(path.string());
  if (!split) {
    return {path};
  }
  require(split->number == 1,
          "{}: expected the first of the files that the model is split into, {}", path.string(),
          split->file(1));
  std::vector<std::filesystem::path> files;
  for (int number = 1; number <= split->count; ++number) {
    files.emplace_back(split->file(number));
    std::error_code ignored;
    require(std::filesystem::is_regular_file(files.back(), ignored),
            "{}: the file is missing; the model is split into {}", files.back().string(),
            split->count);
  }
  return files;
}

File::File(const std::filesystem::path& path) : path_(path) {
  const std::vector<std::filesystem::path> files = split_files(path);
  for (const std::filesystem::path& file : files) {
    add_part(file);
  }
  if (const json* count = find(content_, "split.count"); count && *count != 0) {
    require(*count == files.size(), "{}: split.count is {}, but the file's name says {}",
            path.string(), described(*count), files.size());
  }
  if (const json* tensors = find(content_, "split.tensors.count")) {
    require(*tensors == content_.tensors.size(),
            "{}: split.tensors.count is {}, but the files have {}", path.string(),
            described(*tensors), content_.tensors.size());
  }
}

void File::add_part(const std::filesystem::path& path) {
  const std::size_t number = mapped_.size();
  Content part = parse(mapped_.emplace_back(path).bytes(), path.string());
  if (const json* stated = find(part, "split.no")) {
    require(*stated == number, "{}: split.no is {}, expected {}, as the file's name says",
            path.string(), described(*stated), number);
  }
  if (number == 0) {
    content_ = std::move(part);
    return;
  }
  for (auto& [name, tensor] : part.tensors) {
    require(content_.tensors.emplace(name, tensor).second,
            "{}: tensor {} is in an earlier file, too", path.string(), in_quotes(name));
  }
}

}  // namespace winnow::gguf
