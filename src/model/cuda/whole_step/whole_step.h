// A decode step of a few sequences, all layers in one kernel: linear layers, and attention between
// them, publish their results (ops/cuda/linear/skinny_gemm_kernels.h), so that nobody waits for a
// kernel to end and another to begin.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <optional>
#include <span>

#include "kvcache/cuda/append/projection.h"
#include "kvcache/cuda/device_cache.h"
#include "ops/cuda/decode/decode_attention.h"
#include "ops/cuda/linear/skinny_gemm.h"

namespace winnow::model::cuda {

class WholeStep {
 public:
  /// A model's layers as its tokens pass through them: of each the product that makes q, k and v
  /// (stored), what attention makes multiplied and added (its input null), gate and up, down; last
  /// the head. All of one weight format.
  struct Layers {
    std::span<const ops::cuda::SkinnyGemm> linear;           // [4 layers + 1]
    std::span<const kvcache::cuda::Projection> projections;  // [layers]
  };

  /// Whether there is a kernel for this cache and these layers.
  static bool supports(const kvcache::cuda::DeviceCache& cache, const Layers& layers);

  /// Which rows a step of one sequence is made for; several have but one kernel, for long ones. Any
  /// are right, but sums may be added up in another order.
  enum class Rows { short_rows, long_rows };

  /// Where the end of a step is told to the host, in page-locked memory: the tokens last, before
  /// the kernel has ended.
  struct StepEnd {
    std::int32_t* tokens = nullptr;      // [sequences]
    std::int32_t* free_pages = nullptr;  // [1]
  };

  /// For layers that supports() has accepted.
  WholeStep(const kvcache::cuda::DeviceCache& cache, const Layers& layers);

  /// A token of each of the sequences in slots[sequences] (device memory) through all layers, from
  /// the first one's input on; last they are appended in all of them. `scale`: of the scores. With
  /// `end` the sequences then move on (next_pages.cuh) and the host is told; without, that is left
  /// to who comes next. Programmatic: weights are read before its predecessor is complete, nothing
  /// else.
  void run(const Layers& layers, const std::int32_t* slots, int sequences, float scale, Rows rows,
           const StepEnd* end, cudaStream_t stream) const;

  using RowPages = ops::cuda::DecodePlan::RowPages;
  /// What to take the rows of a layer (KV heads of all sequences) of so many pages for; none where
  /// this is not faster. A row's pages are cut among so many warps.
  static std::optional<Rows> rows_of(const RowPages& pages, int sequences, int kv_heads, int warps,
                                     std::size_t page_bytes);
  /// The same for this cache. None for more sequences than a kernel takes.
  [[nodiscard]] std::optional<Rows> rows_of(const RowPages& pages, int sequences) const;

 private:
  const kvcache::cuda::DeviceCache& cache_;
  int most_sequences_;
  ops::cuda::SkinnyScratch scratch_;
  winnow::cuda::DeviceBuffer<std::int32_t> next_pages_;  // WholeStepEnd
};

}  // namespace winnow::model::cuda
