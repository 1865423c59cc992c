// Linear layers for many rows on the device, forward and backward: cuBLASLt.
#pragma once

#include <cuda_runtime_api.h>

#include <compare>
#include <cstdint>
#include <map>
#include <memory>

#include "base/cuda/device.h"
#include "base/dtype.h"

namespace winnow::ops::cuda {

/// Rows of e4m3 codes with a scale each.
struct Fp8Rows {
  const std::uint8_t* codes = nullptr;
  const float* scales = nullptr;  // [rows]
};

/// Whether such rows can be multiplied: needs compute capability 9.0, and cuBLASLt of CUDA 12.9 or
/// later, as older ones do not support scales of rows.
bool has_fp8_products();

/// Products with weights [outputs, inputs] in bf16, sums in float; and their backward. Caches
/// the algorithm for each shape. Rows begin at multiples of 16 bytes. Matrices with `outputs`
/// columns have a row stride `stride` in elements (0: outputs). One object serves one stream at a
/// time: all calls share its scratch memory.
class Linear {
 public:
  Linear();
  ~Linear();

  /// While `on`, products of new shapes are timed with several algorithms, which corrupts the
  /// outputs that they add to. Otherwise cuBLASLt's first choice is used.
  void search(bool on) { searching_ = on; }

  /// y [rows, outputs] = x [rows, inputs] weight^T; a batch of `batch` products, with contiguous
  /// operands.
  void multiply(bf16* y, const bf16* x, const bf16* weight, int rows, int outputs, int inputs,
                cudaStream_t stream, int batch = 1);
  void multiply(float* y, const bf16* x, const bf16* weight, int rows, int outputs, int inputs,
                cudaStream_t stream, int stride = 0);
  /// y += x weight^T.
  void multiply_add(float* y, const bf16* x, const bf16* weight, int rows, int outputs, int inputs,
                    cudaStream_t stream) {
    multiply_add(y, y, x, weight, rows, outputs, inputs, stream);
  }
  /// y = c + x weight^T.
  void multiply_add(float* y, const float* c, const bf16* x, const bf16* weight, int rows,
                    int outputs, int inputs, cudaStream_t stream);

  /// The same products with e4m3 codes, in cuBLASLt's fast mode: a tensor core's sums have about 14
  /// significant bits (compute capability 9.0). inputs and outputs are multiples of 16.
  void multiply(bf16* y, const Fp8Rows& x, const Fp8Rows& weight, int rows, int outputs, int inputs,
                cudaStream_t stream);
  void multiply(float* y, const Fp8Rows& x, const Fp8Rows& weight, int rows, int outputs,
                int inputs, cudaStream_t stream, int stride = 0);
  void multiply_add(float* y, const Fp8Rows& x, const Fp8Rows& weight, int rows, int outputs,
                    int inputs, cudaStream_t stream) {
    multiply_add(y, y, x, weight, rows, outputs, inputs, stream);
  }
  void multiply_add(float* y, const float* c, const Fp8Rows& x, const Fp8Rows& weight, int rows,
                    int outputs, int inputs, cudaStream_t stream);

  /// dx [rows, inputs] = dy [rows, outputs] weight, or += with `add`; `batch` as above.
  void input_gradient(bf16* dx, const bf16* dy, const bf16* weight, int rows, int outputs,
                      int inputs, bool add, cudaStream_t stream, int stride = 0, int batch = 1);
  /// dweight [outputs, inputs] += dy^T x.
  void weight_gradient(float* dweight, const bf16* dy, const bf16* x, int rows, int outputs,
                       int inputs, cudaStream_t stream, int stride = 0);

 private:
  struct Plan;
  enum class Kind : std::uint8_t {
    bf16,
    f32,
    add,
    input_gradient,
    input_gradient_add,
    weight_gradient,
    fp8_bf16,
    fp8_f32,
    fp8_add,
  };
  struct Shape {
    Kind kind;
    int rows;
    int outputs;
    int inputs;
    int stride;
    int batch = 1;
    auto operator<=>(const Shape&) const = default;  // NOLINT(modernize-use-nullptr): misread
  };
  /// out = beta * c + the product of the operands of this kind.
  struct Operands {
    void* out;
    const void* c;
    const void* first;
    const void* second;
    const float* first_scales = nullptr;  // fp8
    const float* second_scales = nullptr;
  };
  void run(Shape shape, const Operands& operands, cudaStream_t stream);
  void multiply(const Plan& plan, const Operands& operands, cudaStream_t stream) const;
  /// Keeps only the fastest of the plan's algorithms.
  void time_algorithms(Plan& plan, const Operands& operands, cudaStream_t stream) const;

  struct Handle;
  std::unique_ptr<Handle> handle_;
  std::map<Shape, std::unique_ptr<Plan>> plans_;
  winnow::cuda::DeviceBuffer<std::byte> scratch_;
  bool searching_ = false;
};

}  // namespace winnow::ops::cuda
