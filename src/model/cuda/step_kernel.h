// The interface of decode steps that run in one kernel.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <optional>
#include <string_view>

#include "model/cuda/stream_rows.h"
#include "ops/cuda/decode/decode_attention.h"
#include "ops/cuda/linear/skinny_gemm.h"

namespace winnow::model::cuda {

/// The kind of rows (KV heads of all sequences) that a kernel for one sequence is optimized for;
/// several sequences have one kernel, for long rows. Each kernel is correct for all rows, but the
/// order of sums may differ.
enum class RowKind : std::uint8_t { short_rows, long_rows };

/// All layers of a step and the head. One implementation per path (fast_paths.h).
class StepKernel {
 public:
  using RowPages = ops::cuda::DecodePlan::RowPages;

  /// A step's inputs in device memory.
  struct Step {
    const std::int32_t* slots = nullptr;  // [sequences]
    const float2* angles = nullptr;       // [sequences, head_dim / 2]
    int sequences = 0;
    bool with_logits = false;
    /// Null: nothing is handed out; else its places after layers 1 to n - 1 receive the stream.
    const StreamRows* states = nullptr;
  };
  /// Page-locked memory where a step signals its end to the host; the tokens are written last,
  /// before the kernel ends.
  struct End {
    std::int32_t* tokens = nullptr;      // [sequences]
    std::int32_t* free_pages = nullptr;  // [1]
  };

  StepKernel() = default;
  virtual ~StepKernel() = default;
  StepKernel(const StepKernel&) = delete;
  StepKernel& operator=(const StepKernel&) = delete;

  /// Its name in docs/lab/internals.md.
  [[nodiscard]] virtual std::string_view name() const = 0;

  /// The kind of rows of a layer with these pages. None if a walk over the layers is faster, or if
  /// there are more sequences than the kernel supports.
  [[nodiscard]] virtual std::optional<RowKind> rows_of(const RowPages& pages,
                                                       int sequences) const = 0;

  /// Where the embedded tokens are written.
  [[nodiscard]] virtual ops::cuda::ResidualStream residual() const = 0;

  /// Runs one token of each sequence through all layers and the head, then appends the tokens in
  /// all layers. With `end` it also advances the sequences (next_pages.cuh) and signals the host;
  /// without it, the next kernel must do so. Programmatic launch: it reads only weights before its
  /// predecessor is complete.
  virtual void run(const Step& step, RowKind rows, const End* end, cudaStream_t stream) const = 0;
};

}  // namespace winnow::model::cuda
