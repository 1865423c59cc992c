// A decode step in one kernel, whatever path it is.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <optional>

#include "ops/cuda/decode/decode_attention.h"
#include "ops/cuda/linear/skinny_gemm.h"

namespace winnow::model::cuda {

/// Which rows (KV heads of all sequences) a kernel of a step of one sequence is made for; several
/// sequences have but one kernel, for long ones. Any are right, but sums may be added up in another
/// order.
enum class RowKind : std::uint8_t { short_rows, long_rows };

/// All layers of a step and the head. One implementation per path (fast_paths.h).
class StepKernel {
 public:
  using RowPages = ops::cuda::DecodePlan::RowPages;

  /// The step's inputs in device memory.
  struct Step {
    const std::int32_t* slots = nullptr;  // [sequences]
    const float2* angles = nullptr;       // [sequences, head_dim / 2]
    int sequences = 0;
    bool with_logits = false;
  };
  /// Page-locked memory through which a step signals its end to the host; the tokens are written
  /// last, before the kernel ends.
  struct End {
    std::int32_t* tokens = nullptr;      // [sequences]
    std::int32_t* free_pages = nullptr;  // [1]
  };

  StepKernel() = default;
  virtual ~StepKernel() = default;
  StepKernel(const StepKernel&) = delete;
  StepKernel& operator=(const StepKernel&) = delete;

  /// What to take the rows of a layer of so many pages for. None where a walk over the layers is
  /// faster, and for more sequences than the kernel takes.
  [[nodiscard]] virtual std::optional<RowKind> rows_of(const RowPages& pages,
                                                       int sequences) const = 0;

  /// Where the embedded tokens go.
  [[nodiscard]] virtual ops::cuda::ResidualStream residual() const = 0;

  /// A token of each of the sequences through all layers and the head; last they are appended in
  /// all layers. With `end` it also advances the sequences (next_pages.cuh) and signals the host;
  /// without, the next kernel does so. Programmatic: weights are read before its predecessor is
  /// complete, nothing else.
  virtual void run(const Step& step, RowKind rows, const End* end, cudaStream_t stream) const = 0;
};

}  // namespace winnow::model::cuda
