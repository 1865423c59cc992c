// Experts on the device (ops/experts.h): the routes of tokens, and the products of each expert with
// the tokens that use it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "base/cuda/device.h"
#include "ops/activation.h"
#include "ops/cuda/experts/routes_view.h"
#include "ops/cuda/linear/device_weight.h"
#include "ops/cuda/linear/skinny_gemm.h"
#include "ops/router.h"

namespace winnow::ops::cuda {

inline constexpr int kGroupTokens = 128;

/// Average number of tokens per expert; from kManyTokens on, kernels for many tokens are faster.
constexpr int tokens_each(const Router& router, int rows) {
  return (rows * router.active + router.count - 1) / router.count;
}
inline constexpr int kManyTokens = 32;

/// The largest number of rows for norm_and_route().
inline constexpr int kMostRoutedRows = 64;

/// Device memory for the routes of up to `rows` tokens, and for their experts' networks with
/// `hidden` inputs and `inner` activated columns; without them (0) for routes alone.
class RoutesMemory {
 public:
  void reserve(const Router& router, int rows, int hidden = 0, int inner = 0);
  [[nodiscard]] RoutesView view() const;

 private:
  winnow::cuda::DeviceBuffer<std::int32_t> experts_;
  winnow::cuda::DeviceBuffer<float> weights_;
  winnow::cuda::DeviceBuffer<std::int32_t> pairs_;
  winnow::cuda::DeviceBuffer<std::int32_t> places_;
  winnow::cuda::DeviceBuffer<std::int32_t> begins_;
  winnow::cuda::DeviceBuffer<std::int32_t> groups_;
  winnow::cuda::DeviceBuffer<bf16> packed_;
  winnow::cuda::DeviceBuffer<bf16> packed_activated_;
  winnow::cuda::DeviceBuffer<float> logits_;
  winnow::cuda::DeviceBuffer<std::uint32_t> arrived_;
};

/// The largest number of experts for route().
inline constexpr int kMostExperts = 1024;

/// Routes of logits [rows, count] + bias [count] (or null), as the CPU chooses them. Rows of logits
/// are `stride` elements apart.
void route(const Router& router, const RoutesView& routes, const float* logits, int stride,
           const float* bias, int rows, cudaStream_t stream);

/// The residual stream of a few rows and the router of the experts that follow.
struct RouterInput {
  const float* hidden = nullptr;       // [rows, cols]
  const float* norm_weight = nullptr;  // [cols]
  float eps = 0.0F;
  int cols = 0;                  // a multiple of 8
  const bf16* weight = nullptr;  // of the router, [count, cols]
  const float* bias = nullptr;   // [count] or null
};

/// Shared memory that norm_and_route() needs for rows of `cols` columns; it supports up to
/// 48 KiB.
std::size_t norm_and_route_bytes(const Router& router, int cols);
bool takes_norm_and_route(const Router& router, int cols);

/// normed [rows, cols] = RMSNorm of hidden, and its routes, in one kernel: the critical path of a
/// step of up to kMostRoutedRows rows. A row's bits do not depend on the other rows.
void norm_and_route(const Router& router, const RoutesView& routes, const RouterInput& input,
                    bf16* normed, int rows, cudaStream_t stream);

/// The same without the routes: normed, and the logits in routes.logits.
void norm_and_score(const Router& router, const RoutesView& routes, const RouterInput& input,
                    bf16* normed, int rows, cudaStream_t stream);

/// The same matrix for all experts.
struct ExpertsMatrix {
  DeviceWeightView weight;      // [experts * outputs, inputs], experts concatenated
  const float* bias = nullptr;  // [experts * outputs] or null
  int outputs = 0;              // a multiple of 16
};

/// The networks of a layer's experts, and memory for what they compute.
struct ExpertsNetwork {
  ExpertsMatrix gate_up;  // gates first
  GatedActivation activation;
  ExpertsMatrix down;
  bool weighs_input = false;  // multiply gates and ups by the route's weight, before the bias
  bf16* products = nullptr;   // [rows * active, gate_up.outputs], if stores_products()
  bf16* activated = nullptr;  // [rows * active, gate_up.outputs / 2]
};

/// Whether multiply_experts() needs memory for `outputs` gates and ups: it activates others as it
/// computes them.
bool stores_products(const GatedActivation& activation, int outputs);

/// out [rows * active, down.outputs] = down(act(gate) * up) of each pair's expert and token of x
/// [rows, inputs], a row per place. Reads weights in their storage format, only of experts that
/// some token uses, once per 8 to 128 of its tokens. Gates, ups and their products are rounded to
/// bf16. `routes` must have room for the columns of x and of `activated`
/// (RoutesMemory::reserve()).
void multiply_experts(const Router& router, bf16* out, const bf16* x, const ExpertsNetwork& network,
                      const RoutesView& routes, int rows, cudaStream_t stream);

/// out [rows, cols] += the sum of each token's rows of y [rows * active, cols], a row per place,
/// each times its weight if they are `weighted`. cols is a multiple of 8.
void add_expert_outputs(const Router& router, float* out, const bf16* y, const RoutesView& routes,
                        bool weighted, int rows, int cols, cudaStream_t stream);

/// out [rows, cols] = the same sum, rounded to bf16.
void sum_expert_outputs(const Router& router, bf16* out, const bf16* y, const RoutesView& routes,
                        bool weighted, int rows, int cols, cudaStream_t stream);

/// add_expert_outputs() for the residual stream, and the input of the next layer.
void add_expert_outputs(const Router& router, const ResidualStream& residual, const bf16* y,
                        const RoutesView& routes, bool weighted, int rows, int cols,
                        cudaStream_t stream);

/// out [rows, cols] += sigmoid(x . gate) * y, with x [rows, cols] and gate [cols]; without a gate,
/// += y. cols is a multiple of 8.
void add_gated(float* out, const float* y, const bf16* x, const float* gate, int rows, int cols,
               cudaStream_t stream);

}  // namespace winnow::ops::cuda
