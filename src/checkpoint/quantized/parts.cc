#include "checkpoint/quantized/parts.h"

#include <cmath>
#include <cstring>

#include "base/error.h"

namespace winnow::quantized {
namespace {

bool is_one_of(std::string_view type, std::string_view types) {
  while (!types.empty()) {
    const std::size_t end = std::min(types.find(' '), types.size());
    if (types.substr(0, end) == type) {
      return true;
    }
    types.remove_prefix(std::min(end + 1, types.size()));
  }
  return false;
}

template <class T>
std::vector<float> values_of(const StoredTensor& tensor) {
  std::vector<float> values(tensor.bytes / sizeof(T));
  for (std::size_t i = 0; i < values.size(); ++i) {
    T value;
    std::memcpy(&value, tensor.data + i * sizeof value, sizeof value);
    values[i] = to_float(value);
  }
  return values;
}

std::vector<float> powers_of_two(const StoredTensor& tensor) {
  std::vector<float> values(tensor.bytes);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = std::ldexp(1.0F, std::to_integer<int>(tensor.data[i]) - 127);
  }
  return values;
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

/// The shape without dimensions of 1.
Shape squeezed(Shape shape) {
  std::erase(shape, 1);
  return shape;
}

}  // namespace

StoredTensor Parts::get(const std::string& part, std::string_view types) const {
  const std::optional<StoredTensor> tensor = find(part);
  if (!tensor) {
    reject(part, "is missing");
  }
  if (!is_one_of(tensor->type, types)) {
    reject(part, fmt::format("has type {}, expected one of {}", tensor->type, types));
  }
  return *tensor;
}

StoredTensor Parts::get(const std::string& part, std::string_view types, const Shape& shape) const {
  StoredTensor tensor = get(part, types);
  if (tensor.shape != shape) {
    reject(part, fmt::format("has shape [{}], expected [{}]", fmt::join(tensor.shape, ", "),
                             fmt::join(shape, ", ")));
  }
  return tensor;
}

void Parts::reject(const std::string& part, const std::string& what) const {
  fail("{}: tensor {} {}", where_, in_quotes(name_of(part)), what);
}

std::vector<float> floats_of(const StoredTensor& tensor) {
  if (tensor.type == "F32") {
    return values_of<float>(tensor);
  }
  if (tensor.type == "F16") {
    return values_of<f16>(tensor);
  }
  if (tensor.type == "BF16") {
    return values_of<bf16>(tensor);
  }
  return tensor.type == "F8_E4M3" ? values_of<f8e4m3>(tensor) : powers_of_two(tensor);
}

std::vector<std::int32_t> groups_in_order(std::int64_t cols, std::int64_t size) {
  std::vector<std::int32_t> groups(static_cast<std::size_t>(cols));
  for (std::size_t k = 0; k < groups.size(); ++k) {
    groups[k] = static_cast<std::int32_t>(static_cast<std::int64_t>(k) / size);
  }
  return groups;
}

std::optional<Block> read_block(const JsonObject& object, const std::string& key) {
  const nlohmann::json* sizes = object.find(key);
  if (sizes == nullptr) {
    return std::nullopt;
  }
  const auto is_size = [](const nlohmann::json& size) {
    return size.is_number_integer() && size > 0 && size <= (1 << 30);
  };
  if (!sizes->is_array() || sizes->size() != 2 || !is_size((*sizes)[0]) || !is_size((*sizes)[1])) {
    object.reject(key, "two sizes");
  }
  return Block{(*sizes)[0].get<std::int64_t>(), (*sizes)[1].get<std::int64_t>()};
}

QuantizedMatrix scaled_by(const Parts& parts, const std::string& part, const Block& block,
                          std::string_view types) {
  const StoredTensor scales = parts.get(part, types);
  const Shape expected{ceil_div(parts.rows, block.rows), ceil_div(parts.cols, block.cols)};
  if (squeezed(scales.shape) != squeezed(expected)) {
    parts.reject(part, fmt::format("has shape [{}], expected [{}]: a scale for {} x {} weights",
                                   fmt::join(scales.shape, ", "), fmt::join(expected, ", "),
                                   block.rows, block.cols));
  }
  QuantizedMatrix matrix;
  matrix.rows = parts.rows;
  matrix.cols = parts.cols;
  matrix.rows_per_block = block.rows;
  matrix.groups = expected[1];
  matrix.group_of = groups_in_order(parts.cols, block.cols);
  matrix.scales = floats_of(scales);
  matrix.stored_bytes = scales.bytes;
  return matrix;
}

}  // namespace winnow::quantized
