#include "checkpoint/quantized/weights.h"

#include <optional>
#include <utility>

#include "base/error.h"
#include "base/note.h"
#include "base/readable.h"

namespace winnow::quantized {
namespace {

constexpr std::string_view kWeight = ".weight";

/// The JSON object that describes the quantisation.
struct Description {
  nlohmann::json object;
  std::string where;
};

std::optional<Description> read_description(const std::filesystem::path& directory,
                                            const std::string& config) {
  const std::string where = (directory / "config.json").string();
  const nlohmann::json document = parse_json(config, where);
  for (const char* key : {"quantization_config", "compression_config"}) {
    if (const auto found = document.find(key); found != document.end() && !found->is_null()) {
      return Description{*found, where + ": " + key};
    }
  }
  // Before config.json had the key, these files had the object, without the method's name.
  for (const auto& [file, method] :
       {std::pair("quantize_config.json", "gptq"), std::pair("quant_config.json", "awq")}) {
    const std::filesystem::path path = directory / file;
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored)) {
      Description description{parse_json(read_text_file(path), path.string()), path.string()};
      if (description.object.is_object() && !description.object.contains("quant_method")) {
        description.object["quant_method"] = method;
      }
      return description;
    }
  }
  return std::nullopt;
}

// Adds a matrix whose codes stay packed in memory; MXFP4 codes may stay in the mapped file.
void add_packed(const QuantizedMatrix& matrix, WeightSizes& sizes) {
  const auto elements = static_cast<std::size_t>(matrix.rows * matrix.cols);
  const bool four_bits = matrix.mxfp4.has_value() || matrix.integer_bits <= 4;
  const bool in_place = matrix.mxfp4.has_value() && matrix.mxfp4->stride == 1;
  (in_place ? sizes.mapped : sizes.packed) += elements / (four_bits ? 2 : 1);
  sizes.packed += elements / kPackedGroup * sizeof(bf16);
}

}  // namespace

std::shared_ptr<Weights> find_weights(const std::filesystem::path& directory,
                                      const std::string& config, const FindTensor& find_tensor,
                                      const std::shared_ptr<const void>& owner,
                                      const std::map<std::string, Shape>& matrices,
                                      const std::map<std::string, JoinedRows>& joined, DType type) {
  const std::optional<Description> description = read_description(directory, config);
  if (!description) {
    return nullptr;
  }
  const JsonObject object(description->object, description->where);
  const std::unique_ptr<const Method> method = read_method(object);
  auto weights = std::make_shared<Weights>(
      directory.string(), object.text("quant_method", "bitsandbytes"), type, owner);
  const auto find = [&](const std::string& module, std::int64_t rows, std::int64_t cols) {
    return method->find(Parts(find_tensor, directory.string(), module, rows, cols));
  };
  for (const auto& [name, shape] : matrices) {
    if (shape.size() != 2 || !name.ends_with(kWeight)) {
      continue;
    }
    if (auto own = find(name.substr(0, name.size() - kWeight.size()), shape[0], shape[1])) {
      weights->add(name, shape, std::move(*own));
    } else if (const auto other = joined.find(name); other != joined.end()) {
      if (const auto whole = find(other->second.module, other->second.rows, shape[1])) {
        weights->add(name, shape, rows_of(*whole, other->second.selection));
      }
    }
  }
  return weights;
}

void Weights::unpack(const std::string& name) {
  if (const auto found = matrices_.find(name); found != matrices_.end()) {
    found->second.packed = false;
    found->second.unpacked = true;
  }
}

void Weights::describe(TensorMap& tensors) const {
  for (const auto& [name, entry] : matrices_) {
    tensors[name] = {type_, entry.shape, nullptr};
  }
}

const QuantizedMatrix* Weights::packed(const std::string& name) const {
  const auto found = matrices_.find(name);
  return found == matrices_.end() || !found->second.packed ? nullptr : &found->second.matrix;
}

const TensorMap& Weights::converted(const TensorMap& tensors, Which which) {
  const std::lock_guard lock(mutex_);
  if (tensors_.empty()) {
    tensors_ = tensors;
  }
  convert(which);
  return tensors_;
}

Buffer<std::byte> Weights::values_of(const std::string& name) const {
  return dequantized(matrices_.at(name).matrix, type_);
}

WeightSizes Weights::sizes() const {
  WeightSizes sizes;
  for (const auto& [name, entry] : matrices_) {
    const QuantizedMatrix& matrix = entry.matrix;
    sizes.types[matrix.type.empty() ? method_ : std::string(matrix.type)] += matrix.stored_bytes;
    if (entry.packed) {
      add_packed(matrix, sizes);
    } else {
      sizes.converted += static_cast<std::size_t>(element_count(entry.shape)) * dtype_size(type_);
    }
  }
  return sizes;
}

bool Weights::wants(const std::string& name, const Entry& entry, Which which) const {
  const auto found = tensors_.find(name);
  const bool has_values = found != tensors_.end() && found->second.data != nullptr;
  return !has_values &&
         (which == Which::all || (which == Which::unpacked ? entry.unpacked : !entry.packed));
}

// Prints a note before the conversion of what takes more memory by it, and a while.
void Weights::announce(Which which) const {
  std::size_t count = 0;
  std::size_t stored = 0;
  std::size_t taken = 0;
  for (const auto& [name, entry] : matrices_) {
    const std::size_t values =
        static_cast<std::size_t>(element_count(entry.shape)) * dtype_size(type_);
    if (wants(name, entry, which) && entry.matrix.stored_bytes < values) {
      ++count;
      stored += entry.matrix.stored_bytes;
      taken += values;
    }
  }
  if (count > 0) {
    note(fmt::format(
        "{}: converts {} matrices that {} quantised to {}: {} in the file, {} in "
        "memory; runs with --weights int8 or int4 keep them small",
        where_, count, method_, dtype_name(type_), readable_bytes(static_cast<double>(stored)),
        readable_bytes(static_cast<double>(taken))));
  }
}

void Weights::convert(Which which) {
  announce(which);
  for (const auto& [name, entry] : matrices_) {
    if (wants(name, entry, which)) {
      const Buffer<std::byte>& values = memory_.emplace_back(dequantized(entry.matrix, type_));
      tensors_[name].data = values.data();
    }
  }
}

}  // namespace winnow::quantized
