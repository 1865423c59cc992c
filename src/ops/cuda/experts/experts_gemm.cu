// The networks of experts, and their products with few tokens each: a block computes 16 of an
// expert's outputs, and its warps share the columns.
#include <algorithm>

#include "base/cuda/launch.cuh"
#include "ops/cuda/experts/experts_gemm.cuh"
#include "ops/cuda/experts/experts_pack.h"
#include "ops/cuda/general/activation.h"
#include "ops/cuda/general/activation_curves.cuh"
#include "ops/cuda/linear/small_batch_gemm.h"

namespace winnow::ops::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;

// A block's use of its sums, and the number of each expert's tiles that they belong to.
struct StoreProducts {
  static constexpr int kTiles = 1;

  template <class Format>
  __device__ void store(const ExpertsCall& call, int expert, int output, int place,
                        const float (&sums)[kTiles]) const {
    store_output<Format>(call, expert, output, place, Format::kUnit * sums[0]);
  }
};

// Gates come first. Gates and ups are rounded like stored products.
template <class Unit>
struct StoreGated {
  static constexpr int kTiles = 2;
  Unit unit;

  template <class Format>
  __device__ void store(const ExpertsCall& call, int expert, int output, int place,
                        const float (&sums)[kTiles]) const {
    const int inner = call.matrix.outputs / 2;
    const bf16 gate = finish_output<Format>(call, expert, output, place, Format::kUnit * sums[0]);
    const bf16 up =
        finish_output<Format>(call, expert, inner + output, place, Format::kUnit * sums[1]);
    call.out[static_cast<std::size_t>(place) * inner + output] =
        to_bf16(unit(to_float(gate), to_float(up)).value);
  }
};

// The expert of row blockIdx.y of blocks. Rows are experts or, if there are fewer places, places: a
// place's row handles its expert if the place is the expert's first; otherwise -1.
__device__ int own_expert(const ExpertsCall& call, bool by_place) {
  const int row = static_cast<int>(blockIdx.y);
  if (!by_place) {
    return row;
  }
  const int expert = call.routes.experts[call.routes.pairs[row]];
  return call.routes.begins[expert] == row ? expert : -1;
}

template <class Format, int kBatches, class Store>
__global__ void __launch_bounds__(kThreads)
    experts_kernel(ExpertsCall call, bool by_place, Store store) {
  constexpr int kTiles = Store::kTiles;
  // + 1 so that lanes access different banks
  __shared__ float parts[kTiles][kWarps][kBatches * 8][kTileRows + 1];
  // Rows by place are the result of an earlier product with the same routes: the preceding kernel
  // has waited for the routes.
  const bool routed = !call.input.by_token;
  if (!routed) {
    winnow::cuda::wait_for_predecessor();
  }
  const int expert = own_expert(call, by_place);
  if (expert >= 0 && routed) {
    if (call.routes.begins[expert] < call.routes.begins[expert + 1]) {
      prefetch_tile<Format>(
          call.matrix.weight,
          expert * (call.matrix.outputs / kTileRows) + static_cast<int>(blockIdx.x),
          static_cast<int>(threadIdx.x), kThreads);
    }
    winnow::cuda::wait_for_predecessor();
  }
  winnow::cuda::release_successor();
  if (expert < 0) {
    return;
  }
  const int end = call.routes.begins[expert + 1];
  const int tiles = call.matrix.outputs / kTileRows;
  const int tile = expert * tiles + static_cast<int>(blockIdx.x);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int first = call.routes.begins[expert]; first < end; first += kBatches * 8) {
    RowInput inputs[kBatches];
    set_inputs(call, first, end, inputs);
    float sums[kTiles][kBatches][4];
    multiply_steps<Format, 2>(call.matrix.weight, tile, tiles / kTiles,
                              static_cast<int>(threadIdx.x) / 32, kWarps, inputs, sums);
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int batch = 0; batch < kBatches; ++batch) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          parts[i][threadIdx.x / 32][batch * 8 + lane % 4 * 2 + j % 2][lane / 4 + j / 2 * 8] =
              sums[i][batch][j];
        }
      }
    }
    __syncthreads();
    const int output = static_cast<int>(threadIdx.x) % kTileRows;
    for (int token = static_cast<int>(threadIdx.x) / kTileRows;
         token < kBatches * 8 && first + token < end; token += kThreads / kTileRows) {
      float totals[kTiles] = {};
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
#pragma unroll
        for (int warp = 0; warp < kWarps; ++warp) {
          totals[i] += parts[i][warp][token][output];
        }
      }
      store.template store<Format>(call, expert, static_cast<int>(blockIdx.x) * kTileRows + output,
                                   first + token, totals);
    }
    __syncthreads();
  }
}

template <class Format, int kBatches, class Store>
void launch_experts(const ExpertsCall& call, int experts, int places, const Store& store,
                    cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(call.matrix.outputs / kTileRows / Store::kTiles),
                  static_cast<unsigned>(std::min(experts, places)));
  winnow::cuda::launch(experts_kernel<Format, kBatches, Store>, grid, kThreads, 0, stream, true,
                       call, places < experts, store);
}

template <class Store>
void run_experts(const Router& router, const ExpertsCall& call, int rows, const Store& store,
                 cudaStream_t stream) {
  with_format(call.matrix.weight.format, [&](auto format) {
    using Format = decltype(format);
    const int places = rows * router.active;
    if (tokens_each(router, rows) <= 4) {
      launch_experts<Format, 1>(call, router.count, places, store, stream);
    } else {
      launch_experts<Format, 2>(call, router.count, places, store, stream);
    }
  });
}

// Whether gates and ups are separate tiles of a gated unit that the kernels can compute.
bool is_gated_at_once(const GatedActivation& activation, int outputs) {
  return outputs % (2 * kTileRows) == 0 && activation.kind == Activation::silu;
}
bool is_gated_at_once(const ExpertsNetwork& network) {
  return is_gated_at_once(network.activation, network.gate_up.outputs);
}

void activate(const Router& router, const ExpertsNetwork& network, int rows, cudaStream_t stream) {
  activate_multiply(network.activation, network.activated, network.products, rows * router.active,
                    network.gate_up.outputs / 2, nullptr, stream);
}

// The calls of both matrices.
struct NetworkCalls {
  ExpertsCall gate_up;
  ExpertsCall down;
};

void multiply_few(const Router& router, const NetworkCalls& calls, const ExpertsNetwork& network,
                  int rows, cudaStream_t stream) {
  ExpertsCall gate_up = calls.gate_up;
  if (!is_gated_at_once(network)) {
    run_experts(router, gate_up, rows, StoreProducts{}, stream);
    activate(router, network, rows, stream);
  } else {
    gate_up.out = network.activated;
    if (network.activation.limit > 0.0F) {
      run_experts(router, gate_up, rows, StoreGated<ClampedUnit>{{network.activation.limit}},
                  stream);
    } else {
      run_experts(router, gate_up, rows, StoreGated<GatedUnit<Activation::silu>>{}, stream);
    }
  }
  run_experts(router, calls.down, rows, StoreProducts{}, stream);
}

void multiply_many(const Router& router, const NetworkCalls& calls, const ExpertsNetwork& network,
                   int rows, cudaStream_t stream) {
  launch_wide_experts(calls.gate_up, router.count, stream);
  activate(router, network, rows, stream);
  launch_wide_experts(calls.down, router.count, stream);
}

void multiply_groups(const Router& router, const NetworkCalls& calls, const ExpertsNetwork& network,
                     int rows, cudaStream_t stream) {
  const RoutesView& routes = calls.down.routes;
  const DeviceWeightView& gate_up = network.gate_up.weight;
  const DeviceWeightView& down = network.down.weight;
  group_tokens(router, routes, stream);
  pack_tokens(router, routes, {calls.gate_up.input.x, true, gate_up.cols}, routes.packed,
              gate_up.format, rows, stream);
  if (is_gated_at_once(network)) {
    launch_grouped_gates(calls.gate_up, network.activation, down.format, router.count, stream);
  } else {
    launch_grouped_experts(calls.gate_up, routes.packed, router.count, stream);
    activate(router, network, rows, stream);
    pack_tokens(router, routes, {network.activated, false, down.cols}, routes.packed_activated,
                down.format, rows, stream);
  }
  launch_grouped_experts(calls.down, routes.packed_activated, router.count, stream);
}

}  // namespace

bool stores_products(const GatedActivation& activation, int outputs) {
  return !is_gated_at_once(activation, outputs) || !has_small_batch_gemm();
}

void multiply_experts(const Router& router, bf16* out, const bf16* x, const ExpertsNetwork& network,
                      const RoutesView& routes, int rows, cudaStream_t stream) {
  const NetworkCalls calls{
      {network.products, {x, true, network.weighs_input}, network.gate_up, routes, router.active},
      {out, {.x = network.activated}, network.down, routes, router.active}};
  if (tokens_each(router, rows) < kManyTokens) {
    multiply_few(router, calls, network, rows, stream);
  } else if (routes.packed == nullptr) {
    multiply_many(router, calls, network, rows, stream);
  } else {
    multiply_groups(router, calls, network, rows, stream);
  }
}

}  // namespace winnow::ops::cuda
