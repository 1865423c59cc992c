// compressed-tensors, llm-compressor's format: fp8 and int8 weights, integers of up to 8 bits
// packed into words, and fp4 as NVFP4 and MXFP4.
#include <algorithm>
#include <regex>

#include "base/error.h"
#include "checkpoint/quantized/codes.h"
#include "checkpoint/quantized/method.h"

namespace winnow::quantized {
namespace {

/// An entry of "config_groups": the quantisation of the weights of the layers that it names.
struct Scheme {
  std::vector<std::string> targets;
  int bits = 0;
  std::string strategy;
  std::int64_t group_size = 0;
  std::optional<Block> block;
  bool symmetric = true;
};

/// "Linear" and other classes match every layer whose weights winnow reads quantised.
bool is_exact(const std::string& target) {
  return target.starts_with("re:") || target.find('.') != std::string::npos ||
         target.ends_with("lm_head");
}

bool matches(const std::string& target, const std::string& module) {
  if (!target.starts_with("re:")) {
    return !is_exact(target) || module == target || module.ends_with("." + target);
  }
  constexpr std::size_t kLongest = 512;
  require(target.size() <= kLongest, "quantization_config: target {} is too long",
          in_quotes(target));
  try {
    return std::regex_search(module, std::regex(target.substr(3)),
                             std::regex_constants::match_continuous);
  } catch (const std::regex_error& error) {
    fail("quantization_config: target {}: not supported: {}", in_quotes(target), error.what());
  }
}

class CompressedTensors : public Method {
 public:
  explicit CompressedTensors(std::vector<Scheme> schemes) : schemes_(std::move(schemes)) {}

  [[nodiscard]] std::optional<QuantizedMatrix> find(const Parts& parts) const override {
    if (const auto packed = parts.find("weight_packed")) {
      if (packed->type != "U8") {
        return packed_integers(parts);
      }
      const bool is_fp6 = packed->shape == Shape{parts.rows, parts.cols / 4 * 3};
      return is_fp6 ? fp6(parts) : fp4(parts);
    }
    const auto weight = parts.find("weight");
    if (weight && (weight->type == "F8_E4M3" || weight->type == "I8")) {
      return bytes(parts);
    }
    return std::nullopt;
  }

 private:
  [[nodiscard]] const Scheme& scheme_of(const Parts& parts, const std::string& part) const {
    const auto named = [&](bool exact) {
      return std::ranges::find_if(schemes_, [&](const Scheme& scheme) {
        return std::ranges::any_of(scheme.targets, [&](const std::string& target) {
          return is_exact(target) == exact && matches(target, parts.module());
        });
      });
    };
    auto found = named(true);
    found = found == schemes_.end() ? named(false) : found;
    if (found == schemes_.end()) {
      parts.reject(part, "is of a layer that no group of quantization_config names");
    }
    return *found;
  }

  static Block block_of(const Scheme& scheme, const Parts& parts) {
    if (scheme.block) {
      return *scheme.block;
    }
    if (scheme.strategy == "tensor") {
      return {parts.rows, parts.cols};
    }
    return {1, scheme.strategy == "channel" ? parts.cols : scheme.group_size};
  }

  /// A matrix without codes: its scales, zeros, and the group of each column.
  [[nodiscard]] static QuantizedMatrix scaled(const Scheme& scheme, const Parts& parts,
                                              std::string_view types = kFloats) {
    const Block block = block_of(scheme, parts);
    QuantizedMatrix matrix = scaled_by(parts, "weight_scale", block, types);
    if (const auto order = parts.find("weight_g_idx")) {
      const StoredTensor table = parts.get("weight_g_idx", "I32", {parts.cols});
      const auto* groups = reinterpret_cast<const std::int32_t*>(table.data);
      if (std::any_of(groups, groups + parts.cols,
                      [&](std::int32_t group) { return group < -1 || group >= matrix.groups; })) {
        parts.reject("weight_g_idx", fmt::format("names groups beyond {}", matrix.groups));
      }
      if (std::none_of(groups, groups + parts.cols, [](std::int32_t g) { return g < 0; })) {
        matrix.group_of.assign(groups, groups + parts.cols);  // -1: groups in order
      }
    }
    return matrix;
  }

  [[nodiscard]] QuantizedMatrix bytes(const Parts& parts) const {
    const Scheme& scheme = scheme_of(parts, "weight");
    const StoredTensor codes = parts.get("weight", "F8_E4M3 I8", {parts.rows, parts.cols});
    QuantizedMatrix matrix = scaled(scheme, parts, kFloatsOrExponents);
    if (!scheme.symmetric) {
      const StoredTensor zeros = parts.get("weight_zero_point", "I8 F8_E4M3");
      read_zeros(parts, zeros, matrix);
    }
    matrix.codes = byte_codes(parts, codes);
    matrix.integer_bits = codes.type == "I8" ? 8 : 0;
    matrix.stored_bytes += codes.bytes;
    return matrix;
  }

  static void read_zeros(const Parts& parts, const StoredTensor& zeros, QuantizedMatrix& matrix) {
    if (zeros.bytes != matrix.scales.size()) {
      parts.reject("weight_zero_point", "is not of the scales' shape");
    }
    matrix.zeros.resize(zeros.bytes);
    for (std::size_t i = 0; i < zeros.bytes; ++i) {
      const auto byte = std::to_integer<std::uint8_t>(zeros.data[i]);
      matrix.zeros[i] = zeros.type == "I8" ? static_cast<float>(static_cast<std::int8_t>(byte))
                                           : to_float(f8e4m3{byte});
    }
  }

  [[nodiscard]] QuantizedMatrix packed_integers(const Parts& parts) const {
    const Scheme& scheme = scheme_of(parts, "weight_packed");
    const auto words = [&](std::int64_t fields) { return (fields * scheme.bits + 31) / 32; };
    const StoredTensor codes = parts.get("weight_packed", "I32", {parts.rows, words(parts.cols)});
    QuantizedMatrix matrix = scaled(scheme, parts);
    const int offset = 1 << (scheme.bits - 1);
    matrix.codes = packed_columns(parts, codes, scheme.bits, offset);
    matrix.integer_bits = scheme.bits;
    matrix.stored_bytes += codes.bytes;
    if (!scheme.symmetric) {
      // Packed along the rows: a word holds the zeros of one column.
      const StoredTensor zeros =
          parts.get("weight_zero_point", "I32", {words(parts.rows), matrix.groups});
      unpack_zeros(zeros, scheme.bits, offset, matrix);
      matrix.stored_bytes += zeros.bytes;
    }
    return matrix;
  }

  static void unpack_zeros(const StoredTensor& zeros, int bits, int offset,
                           QuantizedMatrix& matrix) {
    const auto* words = reinterpret_cast<const std::uint32_t*>(zeros.data);
    const std::int64_t count = zeros.shape[0];
    std::vector<std::uint32_t> column(static_cast<std::size_t>(count));
    matrix.zeros.resize(matrix.scales.size());
    for (std::int64_t g = 0; g < matrix.groups; ++g) {
      for (std::int64_t i = 0; i < count; ++i) {
        column[static_cast<std::size_t>(i)] = words[i * matrix.groups + g];
      }
      for (std::int64_t row = 0; row < matrix.rows; ++row) {
        const auto field = static_cast<int>(packed_field(column.data(), row, bits));
        matrix.zeros[static_cast<std::size_t>(row * matrix.groups + g)] =
            static_cast<float>(field - offset);
      }
    }
  }

  /// NVFP4: fp8 scales per 16 columns, times one scale of the tensor. MX: powers of two per 32.
  [[nodiscard]] QuantizedMatrix fp4(const Parts& parts) const {
    const StoredTensor codes = parts.get("weight_packed", "U8", {parts.rows, parts.cols / 2});
    if (parts.cols % 2 != 0) {
      parts.reject("weight_packed", "holds two weights a byte, but there is an odd number a row");
    }
    const bool nvidia = parts.has("weight_global_scale");
    QuantizedMatrix matrix =
        scaled_by(parts, "weight_scale", {1, nvidia ? 16 : 32}, kFloatsOrExponents);
    if (nvidia) {
      const StoredTensor global = parts.get("weight_global_scale", "F32");
      if (element_count(global.shape) != 1) {
        parts.reject("weight_global_scale", "is not one number");
      }
      for (float& scale : matrix.scales) {
        scale /= floats_of(global).front();
      }
    }
    matrix.codes = nibbles(parts, codes, e2m1_values());
    matrix.stored_bytes += codes.bytes;
    const StoredTensor scales = parts.get("weight_scale", kFloatsOrExponents);
    if (!nvidia && (scales.type == "U8" || scales.type == "F8_E8M0")) {
      matrix.mxfp4 = {codes.data, scales.data};
    }
    return matrix;
  }

  /// MX: e2m3 codes, four in three bytes, and a power of two per 32 columns.
  static QuantizedMatrix fp6(const Parts& parts) {
    if (parts.cols % 4 != 0) {
      parts.reject("weight_packed",
                   fmt::format("holds four weights in three bytes, but rows have {}", parts.cols));
    }
    const StoredTensor codes = parts.get("weight_packed", "U8");
    QuantizedMatrix matrix = scaled_by(parts, "weight_scale", {1, 32}, kFloatsOrExponents);
    matrix.codes = e2m3_codes(parts, codes);
    matrix.stored_bytes += codes.bytes;
    return matrix;
  }

  std::vector<Scheme> schemes_;
};

Scheme read_scheme(const JsonObject& group) {
  Scheme scheme;
  const nlohmann::json* targets = group.find("targets");
  if (targets == nullptr || !targets->is_array() ||
      !std::ranges::all_of(*targets, [](const auto& t) { return t.is_string(); })) {
    group.reject("targets", "an array of strings");
  }
  scheme.targets = targets->get<std::vector<std::string>>();
  const JsonObject weights = group.object("weights");
  scheme.bits = weights.integer("num_bits", 1, 8);
  scheme.symmetric = weights.boolean("symmetric", true);
  scheme.block = read_block(weights, "block_structure");
  scheme.group_size = weights.integer("group_size", -1, 1 << 24, -1);
  scheme.strategy = weights.text("strategy", scheme.group_size > 0   ? "group"
                                             : scheme.group_size < 0 ? "tensor"
                                                                     : "channel");
  const bool known =
      scheme.strategy == "tensor" || scheme.strategy == "channel" ||
      (scheme.strategy == "block" && scheme.block) ||
      ((scheme.strategy == "group" || scheme.strategy == "tensor_group") && scheme.group_size > 0);
  require(known, "{}: strategy {} is not supported with these sizes", weights.where(),
          in_quotes(scheme.strategy));
  if (scheme.strategy != "block") {
    scheme.block.reset();
  }
  return scheme;
}

/// Throws Error for other ways of storing weights.
void reject_transforms(const JsonObject& config) {
  if (config.has("sparsity_config")) {
    const std::string format = config.object("sparsity_config").text("format", "dense");
    require(format == "dense", "{}: sparsity_config: format {} is not supported", config.where(),
            in_quotes(format));
  }
  if (config.has("transform_config")) {
    const JsonObject transforms = config.object("transform_config");
    const nlohmann::json* groups = transforms.find("config_groups");
    require(groups == nullptr || groups->empty(),
            "{}: transform_config: transformed weights are not supported", config.where());
  }
}

}  // namespace

std::unique_ptr<const Method> read_compressed_tensors(const JsonObject& config) {
  reject_transforms(config);
  std::vector<Scheme> schemes;
  if (config.has("config_groups")) {
    const JsonObject groups = config.object("config_groups");
    for (const auto& [name, group] : config.find("config_groups")->items()) {
      const JsonObject object = groups.object(name);
      if (object.has("weights")) {  // else it quantises activations alone
        schemes.push_back(read_scheme(object));
      }
    }
  }
  return std::make_unique<CompressedTensors>(std::move(schemes));
}

}  // namespace winnow::quantized
