#include "model/cuda/decode_step.h"

#include <algorithm>

#include "base/error.h"
#include "model/cuda/decode_step_kernels.h"

namespace winnow::model::cuda {
namespace {

constexpr int kLinears = 4;  // of a layer

}  // namespace

int step_workers() {
  return kStepWorkers * winnow::cuda::multiprocessor_count();
}

DecodeStep::DecodeStep(std::vector<ops::cuda::RowsLayer> linears,
                       std::span<const kvcache::cuda::Projection> projections)
    : linears_(std::move(linears)),
      device_linears_(std::span<const ops::cuda::RowsLayer>(linears_)),
      projections_(projections),
      kv_heads_(projections.front().kv_heads),
      group_(projections.front().group) {
  require(linears_.size() == kLinears * projections.size() + 1,
          "a step of {} layers has {} linear layers", projections.size(), linears_.size());
}

void DecodeStep::run(const Batch& batch, const ops::cuda::RowsScratch& scratch,
                     cudaStream_t stream) const {
  const int rows = batch.append.batch;
  require(rows > 0 && rows <= ops::cuda::kMostLinearRows,
          "a step of {} sequences, expected 1 to {}", rows, ops::cuda::kMostLinearRows);
  const kvcache::cuda::CacheView& cache = batch.cache.view();
  const ops::cuda::DevicePageLayout& layout = batch.cache.layout();
  const int blocks = winnow::cuda::multiprocessor_count();
  const int items = rows * kv_heads_ * ops::cuda::merge_items(group_, layout.head_dim());
  StepProgram program{.rows = {.rows = rows,
                               .count = static_cast<int>(linears_.size()),
                               .layers = device_linears_.data(),
                               .blocks = blocks,
                               .arrived = scratch.arrived(),
                               .best = scratch.best(),
                               .interval = kLinears},
                      .cache = cache,
                      .append = batch.append,
                      .projections = projections_.data(),
                      .attention = batch.plan.arguments(0, batch.entries, batch.scale,
                                                        batch.append.queries, batch.attended),
                      .plan_rows = batch.plan.most_rows(),
                      .append_blocks = std::min(rows * kv_heads_, blocks),
                      .merge_items = items,
                      .merge_blocks = std::min(items, blocks)};
  program.rows.interval_arrivals = program.append_blocks + blocks + program.merge_blocks;
  const ops::cuda::DeviceWeightFormat format = linears_.front().linear.weight.format;
  const StepKind kind{layout.format(), layout.head_dim()};
  switch (format) {
    case ops::cuda::DeviceWeightFormat::bf16:
      return launch_step_bf16(program, kind, linears_, stream);
    case ops::cuda::DeviceWeightFormat::fp8:
      return launch_step_fp8(program, kind, linears_, stream);
    case ops::cuda::DeviceWeightFormat::int8:
      return launch_step_int8(program, kind, linears_, stream);
    case ops::cuda::DeviceWeightFormat::int4:
      return launch_step_int4(program, kind, linears_, stream);
  }
}

}  // namespace winnow::model::cuda
