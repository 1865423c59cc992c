// Access to the tensors in which a quantised matrix is stored.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/json.h"
#include "checkpoint/quantized/quantized_matrix.h"
#include "checkpoint/stored_tensor.h"

namespace winnow::quantized {

/// Finds a tensor of the checkpoint by name.
using FindTensor = std::function<std::optional<StoredTensor>(const std::string& name)>;

/// The parts of the matrix of one linear layer. For the `module` "model.layers.0.mlp.up_proj" they
/// are "<module>.weight", "<module>.weight_scale", ...; a part "_blocks" is "<module>_blocks".
/// Errors name the tensor.
class Parts {
 public:
  /// `where`: the directory in messages. `rows` and `cols`: the matrix's shape in the model.
  Parts(const FindTensor& find, std::string where, std::string module, std::int64_t rows,
        std::int64_t cols)
      : rows(rows), cols(cols), find_(find), where_(std::move(where)), module_(std::move(module)) {}

  const std::int64_t rows;
  const std::int64_t cols;

  [[nodiscard]] const std::string& module() const { return module_; }
  [[nodiscard]] bool has(const std::string& part) const { return find(part).has_value(); }
  [[nodiscard]] std::optional<StoredTensor> find(const std::string& part) const {
    return find_(name_of(part));
  }
  /// The part, which must have one of the types `types` ("U8 I8").
  [[nodiscard]] StoredTensor get(const std::string& part, std::string_view types) const;
  [[nodiscard]] StoredTensor get(const std::string& part, std::string_view types,
                                 const Shape& shape) const;
  /// Throws Error: `what` is wrong with the part.
  [[noreturn]] void reject(const std::string& part, const std::string& what) const;

 private:
  [[nodiscard]] std::string name_of(const std::string& part) const {
    return module_ + (part.starts_with('_') ? "" : ".") + part;
  }

  const FindTensor& find_;
  std::string where_;
  std::string module_;
};

/// The values of a tensor of any floating-point type; U8 and F8_E8M0 are exponents of powers of
/// two, 2^(byte - 127).
std::vector<float> floats_of(const StoredTensor& tensor);

inline constexpr std::string_view kFloats = "F32 F16 BF16 F8_E4M3";
inline constexpr std::string_view kFloatsOrExponents = "F32 F16 BF16 F8_E4M3 F8_E8M0 U8";

/// The group of each column, for groups of `size` successive columns.
std::vector<std::int32_t> groups_in_order(std::int64_t cols, std::int64_t size);

/// The block of weights that share a scale.
struct Block {
  std::int64_t rows = 1;
  std::int64_t cols = 1;
};

/// The block size under `key`, [rows, columns]; nullopt if there is none.
std::optional<Block> read_block(const JsonObject& object, const std::string& key);

/// A matrix without codes, whose scales are `part`, one per block: [row blocks, groups], or
/// fewer dimensions if one of these is 1.
QuantizedMatrix scaled_by(const Parts& parts, const std::string& part, const Block& block,
                          std::string_view types = kFloats);

/// Field `index` of successive fields of `bits` bits. The first one begins in the lowest bits of
/// the first word; fields may cross words.
inline std::uint32_t packed_field(const std::uint32_t* words, std::int64_t index, int bits) {
  const std::int64_t bit = index * bits;
  const std::uint32_t* word = words + bit / 32;
  const int shift = static_cast<int>(bit % 32);
  std::uint64_t window = *word;
  if (shift + bits > 32) {
    window |= std::uint64_t{word[1]} << 32;
  }
  return static_cast<std::uint32_t>(window >> shift) & ((1U << bits) - 1);
}

}  // namespace winnow::quantized
