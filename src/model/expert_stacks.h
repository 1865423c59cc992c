// Matrices that files join in one tensor: those of experts, q, k and v that alternate head by head,
// and two of latent attention. All other code sees separate tensors.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/tensor.h"
#include "checkpoint/quantized/weights.h"
#include "checkpoint/safetensors.h"
#include "model/spec.h"

namespace winnow::model::detail {

/// A tensor of one expert and its place in a stack: element [row, column] is at
/// offset + row * row_stride + column * column_stride. If other rows lie between blocks of its
/// rows, each preceding block adds `between`.
struct StackPiece {
  std::string name;
  Shape shape;
  std::string stack;
  Shape stack_shape;
  std::int64_t offset = 0;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 1;
  std::int64_t block_rows = 0;  // 0: all rows are one block
  std::int64_t between = 0;
  bool of_expert = false;  // some families' files have it as a separate tensor

  /// The place of element [row, column] in the stack.
  [[nodiscard]] std::int64_t place(std::int64_t row, std::int64_t column) const {
    return offset + row * row_stride + column * column_stride +
           (block_rows > 0 ? row / block_rows * between : 0);
  }
  /// Whether the stack already has the required layout.
  [[nodiscard]] bool is_whole() const;
};

/// The rows of joined tensors in quantised files: experts in stacks [expert, out, in] with gate and
/// up interleaved, of families whose plain stacks are transposed (gpt-oss); and q, k and v that
/// alternate.
std::map<std::string, quantized::JoinedRows> stacked_rows(const ModelSpec& spec);

/// Stacks whose pieces are not rows of the stack, in any file: if quantised, they must be
/// converted.
std::map<std::string, Shape> turned_stacks(const ModelSpec& spec);

/// The experts of a checkpoint's stacks.
class ExpertStacks {
 public:
  /// Replaces the stacks among `tensors` by their pieces. Throws Error naming one of another shape
  /// than `spec` calls for; `where`: the file or directory, for messages.
  ExpertStacks(const ModelSpec& spec, const std::string& where, TensorMap& tensors);

  /// The first call copies pieces whose layout differs; until then only their names and shapes
  /// exist. `converted`: has the values of stacks that are quantised.
  void fill(const TensorMap& converted) const;
  /// Whether a tensor is one of those copies.
  [[nodiscard]] bool holds(const TensorView& tensor) const;

 private:
  struct Copy {
    StackPiece piece;
    TensorView stack;
    Buffer<std::byte> memory;
  };
  mutable std::vector<Copy> copies_;
  mutable std::once_flag filled_;
};

/// Tensors in the layout of the family's files: with experts in stacks if it stacks them.
class StackedTensors {
 public:
  StackedTensors(const ModelSpec& spec, const TensorMap& tensors);
  [[nodiscard]] const TensorMap& map() const { return map_; }

 private:
  TensorMap map_;
  std::vector<Buffer<std::byte>> memory_;
};

}  // namespace winnow::model::detail
