// The first and last kernels of a captured decode step.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kvcache/cuda/cache_view.h"
#include "ops/cuda/linear/skinny_gemm.h"

namespace winnow::model::cuda {

/// The slot of a padding row, which belongs to no sequence.
inline constexpr std::int32_t kNoSlot = -1;

/// The step's inputs from the host and its outputs. `host` is page-locked memory that kernels read
/// directly: a copy of a few bytes would take longer. The tokens' rows of `embedding` become the
/// residual stream, as in ops::cuda::embed_rows().
struct StepInputs {
  const std::int32_t* host = nullptr;     // [2, batch] slots, tokens
  std::int32_t* slots = nullptr;          // [batch] copy of the slots on the device
  const std::int32_t* lengths = nullptr;  // by slot: each token's position
  const float* frequencies = nullptr;     // [tables, half]
  const float* rope_factors = nullptr;    // [tables], of cosine and sine
  float2* angles = nullptr;               // [tables, batch, half] cosine and sine
  int tables = 0;
  int half = 0;
  ops::cuda::DeviceWeightView embedding;
  int first_token = 0;  // the first token of `embedding`
  ops::cuda::ResidualStream residual;
};
void begin_step(const StepInputs& inputs, int batch, cudaStream_t stream);

struct StepResults {
  const std::int32_t* slots = nullptr;      // [batch]
  kvcache::cuda::CacheView cache;           // the sequences' lengths grow by one token
  const std::int32_t* tokens = nullptr;     // [batch] the most likely ones
  std::int32_t* host_tokens = nullptr;      // [batch] page-locked (StepTokens); written last
  std::int32_t* host_free_pages = nullptr;  // [1] page-locked
};
void end_step(const StepResults& results, int batch, cudaStream_t stream);

}  // namespace winnow::model::cuda
