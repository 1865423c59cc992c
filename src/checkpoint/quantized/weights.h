// The quantised matrices of a checkpoint.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "checkpoint/quantized/method.h"
#include "checkpoint/safetensors.h"

namespace winnow::quantized {

/// Bytes of the quantised matrices.
struct WeightSizes {
  std::map<std::string, std::size_t> types;  // bytes in the file by ggml's type, or the method
  std::size_t mapped = 0;                    // packed matrices: bytes in pages of the file
  std::size_t packed = 0;                    // packed matrices: bytes in memory
  std::size_t converted = 0;                 // other matrices: bytes in memory
};

class Weights {
 public:
  /// Values are converted to `type`. `where` and `method`: the checkpoint and its quantisation, for
  /// the note; `owner` keeps the stored tensors alive.
  Weights(std::string where, std::string method, DType type, std::shared_ptr<const void> owner)
      : where_(std::move(where)),
        method_(std::move(method)),
        type_(type),
        owner_(std::move(owner)) {}

  void add(const std::string& name, const Shape& shape, QuantizedMatrix matrix) {
    const bool packed = matrix.stays_packed();
    matrices_.emplace(name, Entry{.shape = shape, .matrix = std::move(matrix), .packed = packed});
  }
  /// Marks a matrix, if it is there, as not packed: its values are needed.
  void unpack(const std::string& name);
  [[nodiscard]] bool holds(const std::string& name) const { return matrices_.contains(name); }
  /// Adds views with the type and shape of each matrix, but no values, to `tensors`.
  void describe(TensorMap& tensors) const;
  /// The matrix if it stays packed in memory (QuantizedMatrix::stays_packed()); else null.
  [[nodiscard]] const QuantizedMatrix* packed(const std::string& name) const;
  /// The matrices for which converted() has values; `unpacked`: those marked by unpack().
  enum class Which : std::uint8_t { all, all_but_packed, unpacked };
  /// All of `tensors`, and the matrices, which are converted on their first use.
  const TensorMap& converted(const TensorMap& tensors, Which which = Which::all);
  /// The values of one matrix; no copy is kept here.
  [[nodiscard]] Buffer<std::byte> values_of(const std::string& name) const;
  [[nodiscard]] WeightSizes sizes() const;

 private:
  struct Entry {
    Shape shape;
    QuantizedMatrix matrix;
    bool packed = false;
    bool unpacked = false;  // by unpack()
  };

  [[nodiscard]] bool wants(const std::string& name, const Entry& entry, Which which) const;
  void announce(Which which) const;
  void convert(Which which);

  std::string where_;
  std::string method_;
  DType type_;
  std::shared_ptr<const void> owner_;
  std::map<std::string, Entry> matrices_;

  std::mutex mutex_;
  std::vector<Buffer<std::byte>> memory_;
  TensorMap tensors_;
};

/// A place where a file may store a matrix: within the rows of `module`, which has `rows` in all.
struct JoinedRows {
  std::string module;
  std::int64_t rows = 0;
  RowSelection selection;
};

/// Finds the quantised matrices among those of these names and shapes; `find_tensor` finds their
/// parts, and `owner` keeps these alive. Null if the directory is not quantised: `config` (the text
/// of config.json) has no "quantization_config", and there is no quantize_config.json (AutoGPTQ)
/// or quant_config.json (AutoAWQ). Matrices in `joined` may also be rows of other
/// matrices.
std::shared_ptr<Weights> find_weights(const std::filesystem::path& directory,
                                      const std::string& config, const FindTensor& find_tensor,
                                      const std::shared_ptr<const void>& owner,
                                      const std::map<std::string, Shape>& matrices,
                                      const std::map<std::string, JoinedRows>& joined, DType type);

}  // namespace winnow::quantized
