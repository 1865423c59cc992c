// Statistics of a prompt's queries as they were before RoPE: mean and products of the deviations
// from it, one token after another (Welford), as kvcache/eviction/expected_attention.cc has them.
#include "base/cuda/launch.cuh"
#include "kvcache/cuda/score_eviction/rounds_kernels.h"
#include "ops/cuda/pages/head_vector.cuh"
#include "ops/cuda/pages/kernel_shape.cuh"

namespace winnow::kvcache::cuda {
namespace {

constexpr int kPlainWarps = 8;
constexpr int kTile = 64;   // channels, in both directions
constexpr int kDepth = 16;  // tokens whose channels are in shared memory
constexpr int kEach = 4;    // channels of a thread, in both directions
constexpr int kTileThreads = kTile / kEach * (kTile / kEach);

// The numbers of a query head.
__device__ float* statistics_of(const NotedQueries& noted, int query_head, int dim) {
  return noted.statistics + static_cast<std::size_t>(query_head) * dim * (1 + dim);
}

// Rotates the queries back: block (x, query head), a warp per token.
template <class Format>
__global__ void __launch_bounds__(kPlainWarps * 32)
    plain_queries_kernel(ObservedTokens tokens, NotedQueries noted, int dim) {
  const int token = static_cast<int>(blockIdx.x) * kPlainWarps + static_cast<int>(threadIdx.x) / 32;
  if (token >= tokens.count) {
    return;
  }
  const std::size_t first = (static_cast<std::size_t>(token) * gridDim.y + blockIdx.y) * dim;
  float* plain = noted.plain + first;
  ops::cuda::HeadVector<0> query{ops::cuda::HeadDim<0>(dim)};
  query.load(tokens.queries + first, nullptr);
  if constexpr (Format::kRotated) {
    query.rotate_back();
  }
  query.store(plain);
  __syncwarp();
  for (int plane = static_cast<int>(threadIdx.x) % 32; plane < noted.turned; plane += 32) {
    float& a = plain[noted.interleaved ? 2 * plane : plane];
    float& b = plain[noted.interleaved ? 2 * plane + 1 : plane + noted.turned];
    float sine = 0.0F;
    float cosine = 0.0F;
    sincosf(static_cast<float>(tokens.position + token) * noted.frequencies[plane], &sine, &cosine);
    const float turned = a;
    a = turned * cosine + b * sine;
    b = b * cosine - turned * sine;
  }
}

// Updates the mean, and replaces queries by their deviations from the mean before them. A block per
// query head, a thread per channel. `count`: of the first token among all.
__global__ void deviations_kernel(int tokens, int count, NotedQueries noted, int dim) {
  const int d = static_cast<int>(threadIdx.x);
  float* mean_at = statistics_of(noted, static_cast<int>(blockIdx.x), dim) + d;
  float mean = *mean_at;
  for (int token = 0; token < tokens; ++token) {
    float& query =
        noted.plain[(static_cast<std::size_t>(token) * gridDim.x + blockIdx.x) * dim + d];
    const float beside = query - mean;
    mean += beside * (1.0F / static_cast<float>(count + token));
    query = beside;
  }
  *mean_at = mean;
}

// Adds the products of the deviations: block (tile of columns, tile of rows, query head).
__global__ void __launch_bounds__(kTileThreads)
    products_kernel(int tokens, int count, NotedQueries noted, int dim) {
  __shared__ float rows[kDepth][kTile];
  __shared__ float columns[kDepth][kTile];
  const int thread = static_cast<int>(threadIdx.x);
  const int first_row = static_cast<int>(blockIdx.y) * kTile;
  const int first_column = static_cast<int>(blockIdx.x) * kTile;
  const int row = thread / (kTile / kEach) * kEach;
  const int column = thread % (kTile / kEach) * kEach;
  float* products = statistics_of(noted, static_cast<int>(blockIdx.z), dim) + dim;
  const auto each = [&](const auto& f) {
    for (int a = 0; a < kEach; ++a) {
      for (int b = 0; b < kEach; ++b) {
        if (first_row + row + a < dim && first_column + column + b < dim) {
          f(a, b, products[(first_row + row + a) * dim + first_column + column + b]);
        }
      }
    }
  };
  float sums[kEach][kEach] = {};
  each([&](int a, int b, float& product) { sums[a][b] = product; });
  for (int begin = 0; begin < tokens; begin += kDepth) {
    __syncthreads();  // all threads have read the last tokens
    for (int i = thread; i < kDepth * kTile; i += kTileThreads) {
      const int token = begin + i / kTile;
      const auto channel = [&](int d) {
        return token < tokens && d < dim
                   ? noted.plain[(static_cast<std::size_t>(token) * gridDim.z + blockIdx.z) * dim +
                                 d]
                   : 0.0F;
      };
      rows[i / kTile][i % kTile] = channel(first_row + i % kTile);
      columns[i / kTile][i % kTile] =
          channel(first_column + i % kTile) * (1.0F - 1.0F / static_cast<float>(count + token));
    }
    __syncthreads();
    for (int token = 0; token < kDepth; ++token) {
      for (int a = 0; a < kEach; ++a) {
        for (int b = 0; b < kEach; ++b) {
          sums[a][b] += rows[token][row + a] * columns[token][column + b];
        }
      }
    }
  }
  each([&](int a, int b, float& product) { product = sums[a][b]; });
}

}  // namespace

void launch_note_queries(ops::EntryFormat format, const RoundLayer& layer,
                         const ObservedTokens& tokens, int count, const NotedQueries& noted,
                         cudaStream_t stream) {
  const int dim = layer.cache.head_dim;
  const auto heads = static_cast<unsigned>(layer.kv_heads * layer.group);
  const auto blocks = static_cast<unsigned>((tokens.count + kPlainWarps - 1) / kPlainWarps);
  const auto tiles = static_cast<unsigned>((dim + kTile - 1) / kTile);
  ops::cuda::with_format(format, [&]<ops::EntryFormat kType>() {
    winnow::cuda::launch(plain_queries_kernel<ops::cuda::FormatOf<kType>>, dim3(blocks, heads),
                         kPlainWarps * 32, 0, stream, false, tokens, noted, dim);
  });
  winnow::cuda::launch(deviations_kernel, heads, dim, 0, stream, false, tokens.count, count, noted,
                       dim);
  winnow::cuda::launch(products_kernel, dim3(tiles, tiles, heads), kTileThreads, 0, stream, false,
                       tokens.count, count, noted, dim);
}

}  // namespace winnow::kvcache::cuda
