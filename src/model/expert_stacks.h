// Experts whose matrices share one tensor in a file, q, k and v that alternate in one head by head,
// and the matrices of latent attention that do. All other code sees them as separate tensors.
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

/// A tensor of one expert, and where a stack has it: element [row, column] at
/// offset + row * row_stride + column * column_stride, and where rows come in blocks that have
/// others between them at `between` more for each block before.
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
  bool of_expert = false;  // some families' files hold it as a tensor of its own

  /// Where the stack has element [row, column].
  [[nodiscard]] std::int64_t place(std::int64_t row, std::int64_t column) const {
    return offset + row * row_stride + column * column_stride +
           (block_rows > 0 ? row / block_rows * between : 0);
  }
  /// Whether the stack already has the required layout.
  [[nodiscard]] bool is_whole() const;
};

/// Where files that are quantised hold the matrices of experts, in stacks that are [expert, out,
/// in], gate and up in turn, of families whose plain ones are transposed (gpt-oss); and q, k and v
/// that alternate.
std::map<std::string, quantized::JoinedRows> stacked_rows(const ModelSpec& spec);

/// Stacks whose pieces are not rows of them, in any file: their values are needed where they are
/// quantised.
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

/// Tensors as files of the family hold them: experts in stacks where it has those.
class StackedTensors {
 public:
  StackedTensors(const ModelSpec& spec, const TensorMap& tensors);
  [[nodiscard]] const TensorMap& map() const { return map_; }

 private:
  TensorMap map_;
  std::vector<Buffer<std::byte>> memory_;
};

}  // namespace winnow::model::detail
