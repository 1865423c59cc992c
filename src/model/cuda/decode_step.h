// All layers of a decode step as one kernel.
#pragma once

#include <cuda_runtime_api.h>

#include <span>
#include <vector>

#include "kvcache/cuda/append.h"
#include "ops/cuda/decode_attention.h"
#include "ops/cuda/linear_rows.h"

namespace winnow::model::cuda {

/// Workers of the DecodePlan that the kernel attends by.
int step_workers();

/// The layers of a model, which stay where they are: what each has to do lies on the device.
class DecodeStep {
 public:
  /// `linears`: q k v, o, gate-up, down of each layer, then the head, all of one weight format.
  /// `projections`: one per layer.
  DecodeStep(std::vector<ops::cuda::RowsLayer> linears,
             std::span<const kvcache::cuda::Projection> projections);

  /// What a step works on; `append` and `entries` of layer 0.
  struct Batch {
    const kvcache::cuda::DeviceCache& cache;
    kvcache::cuda::DecodeAppend append;
    const ops::cuda::DecodePlan& plan;  // made for this batch, of step_workers()
    ops::cuda::DecodeEntries entries;
    float scale;     // of attention scores
    bf16* attended;  // [batch, heads * head_dim], the input of o
  };
  /// Takes each sequence's token through all layers, from the first one's input to the head's
  /// output. Up to kMostLinearRows sequences. Overlaps with what is launched around it.
  void run(const Batch& batch, const ops::cuda::RowsScratch& scratch, cudaStream_t stream) const;

 private:
  std::vector<ops::cuda::RowsLayer> linears_;
  winnow::cuda::DeviceBuffer<ops::cuda::RowsLayer> device_linears_;
  winnow::cuda::DeviceBuffer<kvcache::cuda::Projection> projections_;
  int kv_heads_;
  int group_;
};

}  // namespace winnow::model::cuda
