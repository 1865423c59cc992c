#include "base/cuda/launch.cuh"
#include "ops/cuda/activation.h"
#include "ops/cuda/eight.cuh"
#include "ops/cuda/general/activation.h"
#include "ops/cuda/general/activation_curves.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWide = 8;  // elements per thread

// Block (row, columns). Returns this thread's first column, or none.
__device__ int own_column(int cols) {
  const int column = static_cast<int>(blockIdx.y * kThreads + threadIdx.x) * kWide;
  return column < cols ? column : -1;
}

dim3 blocks_of(int rows, int cols) {
  return {static_cast<unsigned>(rows),
          static_cast<unsigned>((cols + kThreads * kWide - 1) / (kThreads * kWide))};
}

template <class T>
__device__ Eight load_biased(const T* from, const float* bias) {
  Eight x = load_eight(from);
  if (bias != nullptr) {
    const Eight b = load_eight(bias);
#pragma unroll
    for (int i = 0; i < kWide; ++i) {
      x.values[i] += b.values[i];
    }
  }
  return x;
}

template <class Unit, class T>
__global__ void __launch_bounds__(kThreads)
    gated_kernel(Unit unit, T* out, const T* gate_up, int cols, const float* bias) {
  winnow::cuda::wait_for_predecessor();
  const int column = own_column(cols);
  if (column < 0) {
    return;
  }
  const T* gates = gate_up + std::size_t{blockIdx.x} * 2 * cols + column;
  const float* of_gates = bias != nullptr ? bias + column : nullptr;
  const Eight gate = load_biased(gates, of_gates);
  const Eight up = load_biased(gates + cols, bias != nullptr ? of_gates + cols : nullptr);
  Eight result;
#pragma unroll
  for (int i = 0; i < kWide; ++i) {
    result.values[i] = unit(gate.values[i], up.values[i]).value;
  }
  store_eight(out + std::size_t{blockIdx.x} * cols + column, result);
}

template <class Unit, class T>
__global__ void __launch_bounds__(kThreads)
    gated_backward_kernel(Unit unit, T* gate_up, T* product, int cols, const float* bias) {
  winnow::cuda::wait_for_predecessor();
  const int column = own_column(cols);
  if (column < 0) {
    return;
  }
  T* gates = gate_up + std::size_t{blockIdx.x} * 2 * cols + column;
  T* products = product + std::size_t{blockIdx.x} * cols + column;
  const float* of_gates = bias != nullptr ? bias + column : nullptr;
  Eight gate = load_biased(gates, of_gates);
  Eight up = load_biased(gates + cols, bias != nullptr ? of_gates + cols : nullptr);
  Eight result = load_eight(products);
#pragma unroll
  for (int i = 0; i < kWide; ++i) {
    const float dout = result.values[i];
    const GatedCurve curve = unit(gate.values[i], up.values[i]);
    result.values[i] = curve.value;
    gate.values[i] = dout * curve.dgate;
    up.values[i] = dout * curve.dup;
  }
  store_eight(gates, gate);
  store_eight(gates + cols, up);
  store_eight(products, result);
}

template <Activation kKind, class T>
__global__ void __launch_bounds__(kThreads) plain_kernel(T* x, int cols, const float* bias) {
  winnow::cuda::wait_for_predecessor();
  const int column = own_column(cols);
  if (column < 0) {
    return;
  }
  T* own = x + std::size_t{blockIdx.x} * cols + column;
  Eight values = load_biased(own, bias != nullptr ? bias + column : nullptr);
#pragma unroll
  for (float& value : values.values) {
    value = activation_at<kKind>(value).value;
  }
  store_eight(own, values);
}

template <Activation kKind, class T>
__global__ void __launch_bounds__(kThreads)
    plain_backward_kernel(T* x, T* result, int cols, const float* bias) {
  winnow::cuda::wait_for_predecessor();
  const int column = own_column(cols);
  if (column < 0) {
    return;
  }
  const std::size_t at = std::size_t{blockIdx.x} * cols + column;
  Eight values = load_biased(x + at, bias != nullptr ? bias + column : nullptr);
  Eight results = load_eight(result + at);
#pragma unroll
  for (int i = 0; i < kWide; ++i) {
    const Curve curve = activation_at<kKind>(values.values[i]);
    values.values[i] = results.values[i] * curve.slope;
    results.values[i] = curve.value;
  }
  store_eight(x + at, values);
  store_eight(result + at, results);
}

template <Activation kKind>
__global__ void __launch_bounds__(kThreads) rows_kernel(bf16* x, FactorRows factors, int cols) {
  winnow::cuda::wait_for_predecessor();
  const int column = own_column(cols);
  if (column < 0) {
    return;
  }
  const std::size_t row = factors.indices != nullptr ? factors.indices[blockIdx.x] : blockIdx.x;
  bf16* own = x + std::size_t{blockIdx.x} * cols + column;
  const Eight factor = load_eight(factors.first + row * factors.stride + column);
  Eight result = load_eight(own);
#pragma unroll
  for (int i = 0; i < kWide; ++i) {
    result.values[i] = activation_at<kKind>(result.values[i]).value * factor.values[i];
  }
  store_eight(own, result);
}

template <Activation kKind>
__global__ void __launch_bounds__(kThreads)
    rows_backward_kernel(bf16* gates, bf16* product, FactorGradients factors, int cols) {
  winnow::cuda::wait_for_predecessor();
  const int column = own_column(cols);
  if (column < 0) {
    return;
  }
  const std::size_t own = std::size_t{blockIdx.x} * cols + column;
  const std::size_t at = blockIdx.x * factors.stride + column;
  const Eight factor = load_eight(factors.factors + at);
  Eight gate = load_eight(gates + own);
  Eight result = load_eight(product + own);
  Eight dfactor;
#pragma unroll
  for (int i = 0; i < kWide; ++i) {
    const Curve curve = activation_at<kKind>(gate.values[i]);
    const float dout = result.values[i];
    dfactor.values[i] = dout * curve.value;
    gate.values[i] = dout * curve.slope * factor.values[i];
    result.values[i] = curve.value * factor.values[i];
  }
  store_eight(factors.gradients + at, dfactor);
  store_eight(gates + own, gate);
  store_eight(product + own, result);
}

/// f.operator()<kKind>() for an activation.
template <class F>
void with_activation(Activation activation, const F& f) {
  switch (activation) {
    case Activation::silu:
      return f.template operator()<Activation::silu>();
    case Activation::gelu_tanh:
      return f.template operator()<Activation::gelu_tanh>();
    case Activation::gelu:
      return f.template operator()<Activation::gelu>();
    case Activation::relu_squared:
      return f.template operator()<Activation::relu_squared>();
  }
}

/// f(unit) for a gated unit.
template <class F>
void with_unit(const GatedActivation& activation, const F& f) {
  if (activation.limit > 0.0F) {
    return f(ClampedUnit{activation.limit});
  }
  with_activation(activation.kind, [&]<Activation kKind>() { f(GatedUnit<kKind>{}); });
}

template <class T>
void run_gated(const GatedActivation& activation, T* out, const T* gate_up, int rows, int cols,
               const float* bias, cudaStream_t stream) {
  if (rows > 0) {
    with_unit(activation, [&](auto unit) {
      winnow::cuda::launch(gated_kernel<decltype(unit), T>, blocks_of(rows, cols), kThreads, 0,
                           stream, true, unit, out, gate_up, cols, bias);
    });
  }
}

template <class T>
void run_gated_backward(const GatedActivation& activation, T* gate_up, T* product, int rows,
                        int cols, const float* bias, cudaStream_t stream) {
  if (rows > 0) {
    with_unit(activation, [&](auto unit) {
      winnow::cuda::launch(gated_backward_kernel<decltype(unit), T>, blocks_of(rows, cols),
                           kThreads, 0, stream, true, unit, gate_up, product, cols, bias);
    });
  }
}

template <class T>
void run_plain(Activation activation, T* x, int rows, int cols, const float* bias,
               cudaStream_t stream) {
  if (rows > 0) {
    with_activation(activation, [&]<Activation kKind>() {
      winnow::cuda::launch(plain_kernel<kKind, T>, blocks_of(rows, cols), kThreads, 0, stream, true,
                           x, cols, bias);
    });
  }
}

template <class T>
void run_plain_backward(Activation activation, T* x, T* result, int rows, int cols,
                        const float* bias, cudaStream_t stream) {
  if (rows > 0) {
    with_activation(activation, [&]<Activation kKind>() {
      winnow::cuda::launch(plain_backward_kernel<kKind, T>, blocks_of(rows, cols), kThreads, 0,
                           stream, true, x, result, cols, bias);
    });
  }
}

}  // namespace

void activate_multiply(const GatedActivation& activation, bf16* out, const bf16* gate_up, int rows,
                       int cols, const float* bias, cudaStream_t stream) {
  if (activation.is_swiglu()) {  // which has its own kernels
    return silu_multiply(out, gate_up, rows, cols, bias, stream);
  }
  run_gated(activation, out, gate_up, rows, cols, bias, stream);
}
void activate_multiply(const GatedActivation& activation, float* out, const float* gate_up,
                       int rows, int cols, const float* bias, cudaStream_t stream) {
  run_gated(activation, out, gate_up, rows, cols, bias, stream);
}

void activate_multiply_backward(const GatedActivation& activation, bf16* gate_up, bf16* product,
                                int rows, int cols, const float* bias, cudaStream_t stream) {
  if (activation.is_swiglu()) {  // which has its own kernels
    return silu_multiply_backward(gate_up, product, rows, cols, bias, stream);
  }
  run_gated_backward(activation, gate_up, product, rows, cols, bias, stream);
}
void activate_multiply_backward(const GatedActivation& activation, float* gate_up, float* product,
                                int rows, int cols, const float* bias, cudaStream_t stream) {
  run_gated_backward(activation, gate_up, product, rows, cols, bias, stream);
}

void activate_multiply_rows(Activation activation, bf16* x, const FactorRows& factors, int rows,
                            int cols, cudaStream_t stream) {
  if (rows > 0) {
    with_activation(activation, [&]<Activation kKind>() {
      winnow::cuda::launch(rows_kernel<kKind>, blocks_of(rows, cols), kThreads, 0, stream, true, x,
                           factors, cols);
    });
  }
}

void activate_multiply_rows_backward(Activation activation, bf16* gates, bf16* product,
                                     const FactorGradients& factors, int rows, int cols,
                                     cudaStream_t stream) {
  if (rows > 0) {
    with_activation(activation, [&]<Activation kKind>() {
      winnow::cuda::launch(rows_backward_kernel<kKind>, blocks_of(rows, cols), kThreads, 0, stream,
                           true, gates, product, factors, cols);
    });
  }
}

void activate(Activation activation, bf16* x, int rows, int cols, const float* bias,
              cudaStream_t stream) {
  run_plain(activation, x, rows, cols, bias, stream);
}
void activate(Activation activation, float* x, int rows, int cols, const float* bias,
              cudaStream_t stream) {
  run_plain(activation, x, rows, cols, bias, stream);
}

void activate_backward(Activation activation, bf16* x, bf16* result, int rows, int cols,
                       const float* bias, cudaStream_t stream) {
  run_plain_backward(activation, x, result, rows, cols, bias, stream);
}
void activate_backward(Activation activation, float* x, float* result, int rows, int cols,
                       const float* bias, cudaStream_t stream) {
  run_plain_backward(activation, x, result, rows, cols, bias, stream);
}

}  // namespace winnow::ops::cuda
