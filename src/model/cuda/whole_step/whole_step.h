// A decode step of a few sequences in one kernel: all linear layers, and attention between them.
// They publish their results to each other (ops/cuda/linear/skinny_gemm_kernels.h), so no time is
// lost between the end of a kernel and the start of the next. whole_step.cuh has the order.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "kvcache/cuda/append/projection.h"
#include "kvcache/cuda/device_cache.h"
#include "model/cuda/device_model.h"
#include "model/cuda/output_head.h"
#include "model/cuda/skinny_layers.h"
#include "model/cuda/step_kernel.h"

namespace winnow::model::cuda {

class WholeStep final : public StepKernel {
 public:
  /// Whether there is a kernel for this model and cache.
  static bool takes(const DeviceModel& model, const kvcache::cuda::DeviceCache& cache);

  /// Requires takes(). All arguments must outlive this.
  WholeStep(const DeviceModel& model, const kvcache::cuda::DeviceCache& cache,
            const OutputHead& head);

  [[nodiscard]] std::string_view name() const override { return "WholeStep"; }
  [[nodiscard]] ops::cuda::ResidualStream residual() const override { return rows_.residual(); }
  void run(const Step& step, RowKind rows, const End* end, cudaStream_t stream) const override;

  [[nodiscard]] std::optional<RowKind> rows_of(const RowPages& pages, int sequences) const override;
  /// The same for any cache: a row's pages are split evenly among `warps` warps.
  static std::optional<RowKind> rows_of(const RowPages& pages, int sequences, int kv_heads,
                                        int warps, std::size_t page_bytes);

 private:
  /// A model's layers in the order of a step. Each has four products: q, k and v (stored), the
  /// output projection (added; its input null), gate and up, down; the head comes last. All have
  /// the same weight format.
  struct Layers {
    std::vector<ops::cuda::SkinnyGemm> linear;           // [4 layers + 1]
    std::vector<kvcache::cuda::Projection> projections;  // [layers]
  };
  [[nodiscard]] Layers layers_of(const float2* angles, bool with_logits,
                                 const StreamRows* states) const;
  [[nodiscard]] std::size_t most_published_bytes() const;

  const DeviceModel& model_;
  const kvcache::cuda::DeviceCache& cache_;
  const OutputHead& head_;
  SkinnyLayers rows_;
  int most_sequences_;
  ops::cuda::SkinnyScratch scratch_;
  winnow::cuda::DeviceBuffer<std::int32_t> next_pages_;  // WholeStepEnd
};

}  // namespace winnow::model::cuda
