// GPTQ (Frantar et al. 2023) as AutoGPTQ and GPTQModel store it: codes packed along the inputs,
// scales and zeros per group of inputs, and with act-order a table of each input's group.
#include "base/error.h"
#include "checkpoint/quantized/method.h"

namespace winnow::quantized {
namespace {

class Gptq : public Method {
 public:
  Gptq(int bits, int zero_offset) : bits_(bits), zero_offset_(zero_offset) {}

  [[nodiscard]] std::optional<QuantizedMatrix> find(const Parts& parts) const override {
    const std::optional<StoredTensor> stored = parts.find("qweight");
    if (!stored) {
      return std::nullopt;
    }
    const int bits = bits_of(parts, *stored);
    const StoredTensor codes = parts.get("qweight", "I32", {parts.cols * bits / 32, parts.rows});
    const StoredTensor scales = parts.get("scales", kFloats);
    if (scales.shape.size() != 2 || scales.shape[0] == 0 || scales.shape[1] != parts.rows) {
      parts.reject("scales", fmt::format("has shape [{}], expected [groups, {}]",
                                         fmt::join(scales.shape, ", "), parts.rows));
    }
    QuantizedMatrix matrix;
    matrix.rows = parts.rows;
    matrix.cols = parts.cols;
    matrix.groups = scales.shape[0];
    matrix.group_of = groups_of(parts, matrix.groups);
    matrix.scales = transposed(floats_of(scales), matrix.groups, parts.rows);
    const StoredTensor zeros =
        parts.get("qzeros", "I32", {matrix.groups, (parts.rows * bits + 31) / 32});
    matrix.zeros = read_zeros(zeros, matrix.groups, parts.rows, bits);
    matrix.codes = column_codes(codes, parts.cols, parts.rows, bits);
    make_signed(matrix, bits);
    matrix.stored_bytes = codes.bytes + scales.bytes + zeros.bytes;
    return matrix;
  }

 private:
  /// The width of the codes, from the shape: GPTQModel may use other widths in some layers.
  [[nodiscard]] int bits_of(const Parts& parts, const StoredTensor& stored) const {
    for (const int bits : {bits_, 2, 3, 4, 8}) {
      if (!stored.shape.empty() && stored.shape[0] * 32 == parts.cols * bits) {
        return bits;
      }
    }
    parts.reject("qweight", fmt::format("has shape [{}], expected [{}, {}] for {} bits",
                                        fmt::join(stored.shape, ", "), parts.cols * bits_ / 32,
                                        parts.rows, bits_));
  }

  /// Transposes [groups, rows] to [rows, groups].
  static std::vector<float> transposed(const std::vector<float>& values, std::int64_t groups,
                                       std::int64_t rows) {
    std::vector<float> out(values.size());
    for (std::int64_t g = 0; g < groups; ++g) {
      for (std::int64_t row = 0; row < rows; ++row) {
        out[static_cast<std::size_t>(row * groups + g)] =
            values[static_cast<std::size_t>(g * rows + row)];
      }
    }
    return out;
  }

  static std::vector<std::int32_t> groups_of(const Parts& parts, std::int64_t groups) {
    if (!parts.has("g_idx")) {
      if (parts.cols % groups != 0) {
        parts.reject("scales", fmt::format("has {} groups, which do not divide {} inputs", groups,
                                           parts.cols));
      }
      return groups_in_order(parts.cols, parts.cols / groups);
    }
    const StoredTensor table = parts.get("g_idx", "I32", {parts.cols});
    const auto* first = reinterpret_cast<const std::int32_t*>(table.data);
    std::vector<std::int32_t> result(first, first + parts.cols);
    for (const std::int32_t group : result) {
      if (group < 0 || group >= groups) {
        parts.reject("g_idx", fmt::format("names group {} of {}", group, groups));
      }
    }
    return result;
  }

  [[nodiscard]] std::vector<float> read_zeros(const StoredTensor& zeros, std::int64_t groups,
                                              std::int64_t rows, int bits) const {
    const auto* words = reinterpret_cast<const std::uint32_t*>(zeros.data);
    std::vector<float> out(static_cast<std::size_t>(groups * rows));
    for (std::int64_t g = 0; g < groups; ++g) {
      for (std::int64_t row = 0; row < rows; ++row) {
        const auto field = static_cast<int>(packed_field(words + g * zeros.shape[1], row, bits));
        out[static_cast<std::size_t>(row * groups + g)] = static_cast<float>(field + zero_offset_);
      }
    }
    return out;
  }

  /// Codes packed along the rows of the stored matrix, which are the columns of the model's matrix.
  static QuantizedMatrix::ReadCodes column_codes(const StoredTensor& tensor, std::int64_t cols,
                                                 std::int64_t rows, int bits) {
    return [=, words = reinterpret_cast<const std::uint32_t*>(tensor.data)](
               std::int64_t begin, std::int64_t end, float* out) {
      for (std::int64_t k = 0; k < cols; ++k) {
        const std::int64_t bit = k * bits;
        const int shift = static_cast<int>(bit % 32);
        const std::uint32_t* const line = words + bit / 32 * rows;
        for (std::int64_t row = begin; row < end; ++row) {
          std::uint64_t window = line[row];
          if (shift + bits > 32) {
            window |= std::uint64_t{line[row + rows]} << 32;
          }
          out[(row - begin) * cols + k] =
              static_cast<float>((window >> shift) & ((1U << bits) - 1));
        }
      }
    };
  }

  int bits_;
  int zero_offset_;
};

}  // namespace

std::unique_ptr<const Method> read_gptq(const JsonObject& config) {
  const int bits = config.integer("bits", 2, 8);
  require(bits == 2 || bits == 3 || bits == 4 || bits == 8,
          "{}: bits: expected 2, 3, 4 or 8, got {}", config.where(), bits);
  // The format "gptq" stores each zero minus 1.
  const std::string format = config.text("checkpoint_format", config.text("format", "gptq"));
  require(format == "gptq" || format == "gptq_v2",
          "{}: checkpoint_format {} is not supported, expected \"gptq\" or \"gptq_v2\"",
          config.where(), in_quotes(format));
  return std::make_unique<Gptq>(bits, format == "gptq" ? 1 : 0);
}

}  // namespace winnow::quantized
