// The head dimension of a kernel: a template argument where the kernel is built for it.
#pragma once

#include <cuda_runtime_api.h>

namespace winnow::ops::cuda {

/// D, or the kernel's argument if D = 0.
template <int D>
struct HeadDim {
  HeadDim() = default;
  __host__ __device__ constexpr explicit HeadDim(int /*dim*/) {}
  __host__ __device__ constexpr operator int() const { return D; }
};
template <>
struct HeadDim<0> {
  int dim = 0;
  HeadDim() = default;
  __host__ __device__ constexpr explicit HeadDim(int dim) : dim(dim) {}
  __host__ __device__ constexpr operator int() const { return dim; }
};

}  // namespace winnow::ops::cuda
