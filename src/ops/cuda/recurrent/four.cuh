// Four neighbouring floats of a row.
#pragma once

#include <vector_types.h>

namespace winnow::ops::cuda {

inline __device__ float4 load_four(const float* from) {
  return *reinterpret_cast<const float4*>(from);
}
inline __device__ void store_four(float* to, const float4& x) {
  *reinterpret_cast<float4*>(to) = x;
}

/// sum += x * factor.
inline __device__ void add_scaled(float4& sum, const float4& x, float factor) {
  sum.x += x.x * factor;
  sum.y += x.y * factor;
  sum.z += x.z * factor;
  sum.w += x.w * factor;
}
inline __device__ float4 operator+(const float4& a, const float4& b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}
inline __device__ float4 operator*(const float4& a, float factor) {
  return {a.x * factor, a.y * factor, a.z * factor, a.w * factor};
}
inline __device__ float dot(const float4& a, const float4& b) {
  return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}

}  // namespace winnow::ops::cuda
