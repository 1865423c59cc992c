// Experts on the device (ops/experts.h): the routes of tokens, and the products of each expert with
// the tokens that take it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/cuda/device.h"
#include "ops/cuda/linear/device_weight.h"
#include "ops/router.h"

namespace winnow::ops::cuda {

/// The routes of some tokens, as kernels see them. A pair is a token and an expert that it takes,
/// numbered token * active + rank.
struct RoutesView {
  std::int32_t* experts = nullptr;  // [rows * active]
  float* weights = nullptr;         // [rows * active]
  std::int32_t* pairs = nullptr;    // [rows * active], ordered by expert, then by token
  std::int32_t* places = nullptr;   // [rows * active]: of each pair in that order
  std::int32_t* begins = nullptr;   // [count + 1]: the places of each expert
};

/// Device memory for the routes of up to `rows` tokens.
class RoutesMemory {
 public:
  void reserve(const Router& router, int rows);
  [[nodiscard]] RoutesView view() const;

 private:
  winnow::cuda::DeviceBuffer<std::int32_t> experts_;
  winnow::cuda::DeviceBuffer<float> weights_;
  winnow::cuda::DeviceBuffer<std::int32_t> pairs_;
  winnow::cuda::DeviceBuffer<std::int32_t> places_;
  winnow::cuda::DeviceBuffer<std::int32_t> begins_;
};

/// Experts whose logits route() takes.
inline constexpr int kMostExperts = 1024;

/// Routes of logits [rows, count] + bias [count] (or null), as the CPU chooses them. Rows of logits
/// are `stride` elements apart.
void route(const Router& router, const RoutesView& routes, const float* logits, int stride,
           const float* bias, int rows, cudaStream_t stream);

/// The same matrix of every expert.
struct ExpertsMatrix {
  DeviceWeightView weight;      // [experts * outputs, inputs], one expert below another
  const float* bias = nullptr;  // [experts * outputs] or null
  int outputs = 0;              // a multiple of 16
};

/// What multiply_experts() multiplies.
struct ExpertsInput {
  const bf16* x = nullptr;
  bool by_token = false;  // x is [rows, inputs], a row per token; else a row per place
  bool weighted = false;  // each product, before its bias, is multiplied by its route's weight
};

/// out [rows * active, outputs], a row per place: the products of each pair's expert and input.
/// Reads the weights of experts that some token takes, as they lie, once per some of its tokens (8
/// to 64).
void multiply_experts(const Router& router, bf16* out, const ExpertsInput& input,
                      const ExpertsMatrix& matrix, const RoutesView& routes, int rows,
                      cudaStream_t stream);

/// out [rows, cols] += the sum of each token's rows of y [rows * active, cols], which lie by place,
/// each times its weight if they are `weighted`. cols is a multiple of 8.
void add_expert_outputs(const Router& router, float* out, const bf16* y, const RoutesView& routes,
                        bool weighted, int rows, int cols, cudaStream_t stream);

/// out [rows, cols] += sigmoid(x . gate) * y, of x [rows, cols] and gate [cols]; without a gate y
/// itself. cols is a multiple of 8.
void add_gated(float* out, const float* y, const bf16* x, const float* gate, int rows, int cols,
               cudaStream_t stream);

}  // namespace winnow::ops::cuda
