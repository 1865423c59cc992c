#include <algorithm>

#include "base/cuda/launch.cuh"
#include "ops/cuda/general/elementwise.h"

namespace winnow::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::size_t kMostBlocks = 4096;  // threads loop over further elements

__device__ void put(float& to, float x) {
  to = x;
}
__device__ void put(bf16& to, float x) {
  to = to_bf16(x);
}

// f(i) for all i < count, each once.
template <class F>
__global__ void __launch_bounds__(kThreads) each_kernel(std::size_t count, F f) {
  winnow::cuda::wait_for_predecessor();
  for (std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += std::size_t{gridDim.x} * kThreads) {
    f(i);
  }
}

template <class F>
void for_each(std::size_t count, cudaStream_t stream, const F& f) {
  if (count > 0) {
    const std::size_t blocks = std::min((count + kThreads - 1) / kThreads, kMostBlocks);
    winnow::cuda::launch(each_kernel<F>, static_cast<unsigned>(blocks), kThreads, 0, stream, true,
                         count, f);
  }
}

template <class T>
struct Scale {
  T* x;
  float factor;
  __device__ void operator()(std::size_t i) const { put(x[i], to_float(x[i]) * factor); }
};

struct ScaleBy {
  float* x;
  const float* factor;
  __device__ void operator()(std::size_t i) const { x[i] *= *factor; }
};

template <class T>
struct AddScaled {
  float* x;
  const T* y;
  float factor;
  __device__ void operator()(std::size_t i) const { x[i] += factor * to_float(y[i]); }
};

struct Round {
  bf16* out;
  const float* x;
  __device__ void operator()(std::size_t i) const { out[i] = to_bf16(x[i]); }
};

// The memory offset of a shape's element `i`.
__device__ std::size_t place_of(const LogitRows& shape, std::size_t i) {
  return i / shape.cols * shape.stride + i % shape.cols;
}
std::size_t count_of(const LogitRows& shape) {
  return static_cast<std::size_t>(shape.rows) * shape.cols;
}

struct SoftCap {
  float* x;
  LogitRows shape;
  float cap;
  __device__ void operator()(std::size_t i) const {
    float& own = x[place_of(shape, i)];
    own = cap * tanhf(own / cap);
  }
};

template <class T>
struct SoftCapBackward {
  T* dx;
  const float* capped;
  LogitRows shape;
  float cap;
  __device__ void operator()(std::size_t i) const {
    const std::size_t at = place_of(shape, i);
    const float t = capped[at] / cap;
    put(dx[at], to_float(dx[at]) * (1.0F - t * t));
  }
};

// One pair of channels of one head.
template <class T>
struct Rope {
  T* x;
  HeadRows shape;
  const float2* angles;
  int half;         // pairs per head
  float direction;  // of the rotation: 1, or -1 for backward
  __device__ void operator()(std::size_t i) const {
    const int plane = static_cast<int>(i % half);
    const std::size_t head = i / half % shape.heads;
    const std::size_t row = i / half / shape.heads;
    T* low = x + row * shape.stride + head * shape.head_dim + plane;
    const float2 angle = angles[row * half + plane];
    const float sine = direction * angle.y;
    const float a = to_float(low[0]);
    const float b = to_float(low[half]);
    put(low[0], a * angle.x - b * sine);
    put(low[half], b * angle.x + a * sine);
  }
};

struct NarrowHeads {
  bf16* out;
  std::size_t head_dim;
  const bf16* x;
  std::size_t wide_dim;
  __device__ void operator()(std::size_t i) const {
    out[i] = x[i / head_dim * wide_dim + i % head_dim];
  }
};

struct GrowRows {
  bf16* x;
  int cols;
  RowGrowth growth;
  const std::int32_t* positions;
  __device__ void operator()(std::size_t i) const {
    const auto periods = static_cast<float>((positions[i / cols] + growth.first) / growth.period);
    x[i] = to_bf16(to_float(x[i]) * (1.0F + growth.growth * logf(1.0F + periods)));
  }
};

template <class T>
void turn(T* x, const HeadRows& shape, const float2* angles, int rotary, float direction,
          cudaStream_t stream) {
  const int half = rotary / 2;
  for_each(static_cast<std::size_t>(shape.rows) * shape.heads * half, stream,
           Rope<T>{x, shape, angles, half, direction});
}

}  // namespace

void scale(float* x, std::size_t count, float factor, cudaStream_t stream) {
  for_each(count, stream, Scale<float>{x, factor});
}
void scale(bf16* x, std::size_t count, float factor, cudaStream_t stream) {
  for_each(count, stream, Scale<bf16>{x, factor});
}
void scale_by(float* x, std::size_t count, const float* factor, cudaStream_t stream) {
  for_each(count, stream, ScaleBy{x, factor});
}

void add_scaled(float* x, const float* y, std::size_t count, float factor, cudaStream_t stream) {
  for_each(count, stream, AddScaled<float>{x, y, factor});
}
void add_scaled(float* x, const bf16* y, std::size_t count, float factor, cudaStream_t stream) {
  for_each(count, stream, AddScaled<bf16>{x, y, factor});
}

void round(bf16* out, const float* x, std::size_t count, cudaStream_t stream) {
  for_each(count, stream, Round{out, x});
}

void soft_cap(float* x, const LogitRows& shape, float cap, cudaStream_t stream) {
  for_each(count_of(shape), stream, SoftCap{x, shape, cap});
}
void soft_cap_backward(float* dx, const float* capped, const LogitRows& shape, float cap,
                       cudaStream_t stream) {
  for_each(count_of(shape), stream, SoftCapBackward<float>{dx, capped, shape, cap});
}
void soft_cap_backward(bf16* dx, const float* capped, const LogitRows& shape, float cap,
                       cudaStream_t stream) {
  for_each(count_of(shape), stream, SoftCapBackward<bf16>{dx, capped, shape, cap});
}

void rope(bf16* x, const HeadRows& shape, const float2* angles, int rotary, cudaStream_t stream) {
  turn(x, shape, angles, rotary, 1.0F, stream);
}
void rope(float* x, const HeadRows& shape, const float2* angles, int rotary, cudaStream_t stream) {
  turn(x, shape, angles, rotary, 1.0F, stream);
}
void grow_rows(bf16* x, int rows, int cols, const RowGrowth& growth, const std::int32_t* positions,
               cudaStream_t stream) {
  for_each(static_cast<std::size_t>(rows) * cols, stream, GrowRows{x, cols, growth, positions});
}

void narrow_heads(bf16* out, int head_dim, const bf16* x, int wide_dim, std::size_t heads,
                  cudaStream_t stream) {
  const auto channels = static_cast<std::size_t>(head_dim);
  for_each(heads * channels, stream,
           NarrowHeads{out, channels, x, static_cast<std::size_t>(wide_dim)});
}

void rope_backward(bf16* dx, const HeadRows& shape, const float2* angles, int rotary,
                   cudaStream_t stream) {
  turn(dx, shape, angles, rotary, -1.0F, stream);
}
void rope_backward(float* dx, const HeadRows& shape, const float2* angles, int rotary,
                   cudaStream_t stream) {
  turn(dx, shape, angles, rotary, -1.0F, stream);
}

}  // namespace winnow::ops::cuda
