#include "base/cuda/launch.cuh"
#include "ops/cuda/block_sums.cuh"
#include "ops/cuda/eight.cuh"
#include "ops/cuda/general/norm.h"

namespace winnow::ops::cuda {
namespace {

constexpr int kThreads = 256;

// A block per row. put(place, values) receives eight neighbouring results per call.
template <class Number, class Put>
__device__ void normalize(const Number* x, int cols, const NormWeight& weight, float eps,
                          const Put& put) {
  const std::size_t first = std::size_t{blockIdx.x} * cols;
  float squares = 0.0F;
  for (int col = static_cast<int>(threadIdx.x) * 8; col < cols; col += kThreads * 8) {
    const Eight v = load_eight(x + first + col);
#pragma unroll
    for (const float value : v.values) {
      squares += value * value;
    }
  }
  const float factor = rsqrtf(block_sum<kThreads>(squares) / static_cast<float>(cols) + eps);
  for (int col = static_cast<int>(threadIdx.x) * 8; col < cols; col += kThreads * 8) {
    Eight v = load_eight(x + first + col);
    const Eight w = load_eight(weight.weight + col);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      v.values[i] *= factor * (weight.offset + w.values[i]);
    }
    put(first + col, v);
  }
}

template <class Out, class Number>
__global__ void __launch_bounds__(kThreads)
    norm_kernel(Out* out, const Number* x, int cols, NormWeight weight, float eps) {
  winnow::cuda::wait_for_predecessor();
  normalize(x, cols, weight, eps,
            [=](std::size_t at, const Eight& values) { store_eight(out + at, values); });
}

template <class Number>
__global__ void __launch_bounds__(kThreads)
    add_norm_kernel(float* residual, const Number* x, int cols, NormWeight weight, float eps,
                    float factor) {
  winnow::cuda::wait_for_predecessor();
  normalize(x, cols, weight, eps, [=](std::size_t at, const Eight& values) {
    Eight sum = load_eight(residual + at);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      sum.values[i] += factor * values.values[i];
    }
    store_eight(residual + at, sum);
  });
}

// A block per row.
__global__ void __launch_bounds__(kThreads)
    layer_norm_kernel(bf16* out, const float* x, int cols, NormWeight weight, const float* bias,
                      float eps) {
  winnow::cuda::wait_for_predecessor();
  const std::size_t first = std::size_t{blockIdx.x} * cols;
  const auto each = [&](const auto& f) {
    for (int col = static_cast<int>(threadIdx.x) * 8; col < cols; col += kThreads * 8) {
      f(col, load_eight(x + first + col));
    }
  };
  float sum = 0.0F;
  each([&](int, const Eight& v) {
#pragma unroll
    for (const float value : v.values) {
      sum += value;
    }
  });
  const float mean = block_sum<kThreads>(sum) / static_cast<float>(cols);
  float squares = 0.0F;
  each([&](int, const Eight& v) {
#pragma unroll
    for (const float value : v.values) {
      squares += (value - mean) * (value - mean);
    }
  });
  const float factor = rsqrtf(block_sum<kThreads>(squares) / static_cast<float>(cols) + eps);
  each([&](int col, Eight v) {
    const Eight w = load_eight(weight.weight + col);
    const Eight b = bias != nullptr ? load_eight(bias + col) : Eight{};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      v.values[i] = (v.values[i] - mean) * factor * (weight.offset + w.values[i]) + b.values[i];
    }
    store_eight(out + first + col, v);
  });
}

// A block's part of a row: blockIdx.y is 0 for queries, 1 for keys, 2 for values.
struct RowPart {
  std::size_t first;  // element of the rows
  int cols;
  const float* bias;
  const float* norm;  // null: values, which have none

  __device__ explicit RowPart(const WholeNorms& norms) {
    const int before = blockIdx.y == 0   ? 0
                       : blockIdx.y == 1 ? norms.query_width
                                         : norms.query_width + norms.key_width;
    first = std::size_t{blockIdx.x} * (norms.query_width + 2 * norms.key_width) + before;
    cols = blockIdx.y == 0 ? norms.query_width : norms.key_width;
    bias = norms.bias != nullptr ? norms.bias + before : nullptr;
    norm = blockIdx.y == 0 ? norms.query_norm : blockIdx.y == 1 ? norms.key_norm : nullptr;
  }

  template <class Number>
  __device__ Eight load(const Number* rows, int col) const {
    Eight x = load_eight(rows + first + col);
    if (bias != nullptr) {
      const Eight b = load_eight(bias + col);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        x.values[i] += b.values[i];
      }
    }
    return x;
  }

  // f(column, eight values from there on), for this thread's columns.
  template <class Number, class F>
  __device__ void each(const Number* rows, const F& f) const {
    for (int col = static_cast<int>(threadIdx.x) * 8; col < cols; col += kThreads * 8) {
      f(col, load(rows, col));
    }
  }

  template <class Number>
  __device__ float squares(const Number* rows) const {
    float squares = 0.0F;
    each(rows, [&](int, const Eight& x) {
#pragma unroll
      for (const float value : x.values) {
        squares += value * value;
      }
    });
    return block_sum<kThreads>(squares);
  }

  template <class Number>
  __device__ float inverse_rms(const WholeNorms& norms, const Number* rows) const {
    if (norms.squares != nullptr) {
      const float* sums = norms.squares + blockIdx.y;
      return rsqrtf(sums[2 * blockIdx.x] / sums[2 * norms.rows] + norms.eps);
    }
    return rsqrtf(squares(rows) / static_cast<float>(cols) + norms.eps);
  }
};

// A block per row and one for the numbers of channels; blockIdx.y as above.
template <class Number>
__global__ void __launch_bounds__(kThreads)
    whole_squares_kernel(WholeNorms norms, bool counts_keys, float* squares, const Number* rows) {
  winnow::cuda::wait_for_predecessor();
  const RowPart part(norms);
  float sum = 0.0F;
  if (blockIdx.y == 0 || counts_keys) {
    sum = blockIdx.x < norms.rows ? part.squares(rows) : static_cast<float>(part.cols);
  }
  if (threadIdx.x == 0) {
    squares[2 * blockIdx.x + blockIdx.y] = sum;
  }
}

template <class Number>
__global__ void __launch_bounds__(kThreads)
    norm_whole_kernel(WholeNorms norms, Number* out, const Number* rows) {
  winnow::cuda::wait_for_predecessor();
  const RowPart part(norms);
  const float factor = part.norm != nullptr ? part.inverse_rms(norms, rows) : 1.0F;
  part.each(rows, [&](int col, Eight x) {
    if (part.norm != nullptr) {
      const Eight w = load_eight(part.norm + col);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        x.values[i] *= factor * w.values[i];
      }
    }
    store_eight(out + part.first + col, x);
  });
}

// dx_i = r (w_i g_i - x_i r^2 / N sum_j x_j w_j g_j). For values the gradient does not change.
__global__ void __launch_bounds__(kThreads)
    norm_whole_backward_kernel(WholeNorms norms, bf16* gradient, const bf16* rows,
                               float* dquery_norm, float* dkey_norm) {
  winnow::cuda::wait_for_predecessor();
  const RowPart part(norms);
  const float factor = part.inverse_rms(norms, rows);
  float product = 0.0F;
  part.each(rows, [&](int col, const Eight& x) {
    const Eight g = load_eight(gradient + part.first + col);
    const Eight w = load_eight(part.norm + col);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      product += x.values[i] * w.values[i] * g.values[i];
    }
  });
  const float along =
      block_sum<kThreads>(product) * factor * factor / static_cast<float>(part.cols);
  float* dweight = blockIdx.y == 0 ? dquery_norm : dkey_norm;
  part.each(rows, [&](int col, const Eight& x) {
    Eight g = load_eight(gradient + part.first + col);
    const Eight w = load_eight(part.norm + col);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (dweight != nullptr) {
        atomicAdd(dweight + col + i, g.values[i] * x.values[i] * factor);
      }
      g.values[i] = factor * (w.values[i] * g.values[i] - x.values[i] * along);
    }
    store_eight(gradient + part.first + col, g);
  });
}

template <class Number>
void run_whole(const WholeNorms& norms, Number* out, const Number* rows, cudaStream_t stream) {
  if (norms.rows > 0) {
    winnow::cuda::launch(norm_whole_kernel<Number>, dim3(norms.rows, 3), kThreads, 0, stream, true,
                         norms, out, rows);
  }
}

template <class Number>
void run_squares(const WholeNorms& norms, bool counts_keys, float* squares, const Number* rows,
                 cudaStream_t stream) {
  winnow::cuda::launch(whole_squares_kernel<Number>, dim3(norms.rows + 1, 2), kThreads, 0, stream,
                       true, norms, counts_keys, squares, rows);
}

template <class Out, class Number>
void run(Out* out, const Number* x, int rows, int cols, const NormWeight& weight, float eps,
         cudaStream_t stream) {
  if (rows > 0) {
    winnow::cuda::launch(norm_kernel<Out, Number>, rows, kThreads, 0, stream, true, out, x, cols,
                         weight, eps);
  }
}

template <class Number>
void run_add(float* residual, const Number* x, int rows, int cols, const NormWeight& weight,
             float eps, float factor, cudaStream_t stream) {
  if (rows > 0) {
    winnow::cuda::launch(add_norm_kernel<Number>, rows, kThreads, 0, stream, true, residual, x,
                         cols, weight, eps, factor);
  }
}

}  // namespace

void rms_norm(bf16* out, const float* x, int rows, int cols, const NormWeight& weight, float eps,
              cudaStream_t stream) {
  run(out, x, rows, cols, weight, eps, stream);
}
void rms_norm(float* out, const float* x, int rows, int cols, const NormWeight& weight, float eps,
              cudaStream_t stream) {
  run(out, x, rows, cols, weight, eps, stream);
}
void rms_norm(bf16* out, const bf16* x, int rows, int cols, const NormWeight& weight, float eps,
              cudaStream_t stream) {
  run(out, x, rows, cols, weight, eps, stream);
}

void add_rms_norm(float* residual, const bf16* x, int rows, int cols, const NormWeight& weight,
                  float eps, float factor, cudaStream_t stream) {
  run_add(residual, x, rows, cols, weight, eps, factor, stream);
}
void add_rms_norm(float* residual, const float* x, int rows, int cols, const NormWeight& weight,
                  float eps, float factor, cudaStream_t stream) {
  run_add(residual, x, rows, cols, weight, eps, factor, stream);
}

void layer_norm(bf16* out, const float* x, int rows, int cols, const NormWeight& weight,
                const float* bias, float eps, cudaStream_t stream) {
  if (rows > 0) {
    winnow::cuda::launch(layer_norm_kernel, rows, kThreads, 0, stream, true, out, x, cols, weight,
                         bias, eps);
  }
}

void whole_squares(const WholeNorms& norms, bool counts_keys, float* squares, const bf16* rows,
                   cudaStream_t stream) {
  run_squares(norms, counts_keys, squares, rows, stream);
}
void whole_squares(const WholeNorms& norms, bool counts_keys, float* squares, const float* rows,
                   cudaStream_t stream) {
  run_squares(norms, counts_keys, squares, rows, stream);
}

void norm_whole(const WholeNorms& norms, bf16* out, const bf16* rows, cudaStream_t stream) {
  run_whole(norms, out, rows, stream);
}
void norm_whole(const WholeNorms& norms, float* out, const float* rows, cudaStream_t stream) {
  run_whole(norms, out, rows, stream);
}

void norm_whole_backward(const WholeNorms& norms, bf16* gradient, const bf16* rows,
                         float* dquery_norm, float* dkey_norm, cudaStream_t stream) {
  if (norms.rows > 0) {
    winnow::cuda::launch(norm_whole_backward_kernel, dim3(norms.rows, 2), kThreads, 0, stream, true,
                         norms, gradient, rows, dquery_norm, dkey_norm);
  }
}

}  // namespace winnow::ops::cuda
