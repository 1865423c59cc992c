// Linear layers for many rows on the device: cuBLASLt.
#pragma once

#include <cuda_runtime_api.h>

#include <compare>
#include <map>
#include <memory>
#include <utility>

#include "base/cuda/device.h"
#include "base/dtype.h"

namespace winnow::ops::cuda {

/// How a shape's algorithm is found: cuBLASLt's guess, or the fastest of several, each tried on the
/// first call's operands, whose result is then worthless. The guess costs up to a sixth of the time
/// where rows are too few to fill the tiles. What is tried depends on clocks: sums may be ordered
/// differently in another process.
enum class AlgorithmChoice : std::uint8_t { guessed, tried };

/// Products with weights [outputs, inputs] in bf16, sums in float. Remembers how each shape is best
/// computed. One object serves one stream at a time: its scratch memory is shared by all calls.
class Linear {
 public:
  explicit Linear(AlgorithmChoice choice = AlgorithmChoice::guessed);
  ~Linear();

  /// y [rows, outputs] = x [rows, inputs] weight^T.
  void multiply(bf16* y, const bf16* x, const bf16* weight, int rows, int outputs, int inputs,
                cudaStream_t stream);
  void multiply(float* y, const bf16* x, const bf16* weight, int rows, int outputs, int inputs,
                cudaStream_t stream);
  /// The same into columns of a wider matrix, whose rows are `stride` apart.
  void multiply(float* y, int stride, const bf16* x, const bf16* weight, int rows, int outputs,
                int inputs, cudaStream_t stream);
  /// y += x weight^T.
  void multiply_add(float* y, const bf16* x, const bf16* weight, int rows, int outputs, int inputs,
                    cudaStream_t stream);

 private:
  struct Plan;
  enum class Kind : std::uint8_t { bf16, f32, add };
  struct Shape {
    int rows;
    int outputs;
    int inputs;
    int stride;  // between rows of y
    auto operator<=>(const Shape&) const = default;
  };
  void run(Kind kind, void* y, const bf16* x, const bf16* weight, const Shape& shape,
           cudaStream_t stream);

  struct Operands;
  void launch(const Plan& plan, const Operands& operands, cudaStream_t stream) const;
  void choose_by_trial(Plan& plan, const Operands& operands, cudaStream_t stream) const;

  struct Handle;
  AlgorithmChoice choice_;
  std::unique_ptr<Handle> handle_;
  std::map<std::pair<Kind, Shape>, std::unique_ptr<Plan>> plans_;
  winnow::cuda::DeviceBuffer<std::byte> scratch_;
};

}  // namespace winnow::ops::cuda
