#include "model/cuda/fast_paths.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "model/cuda/large_batch_layers.h"
#include "model/cuda/skinny_layers.h"
#include "model/cuda/small_batch_layers.h"
#include "model/cuda/whole_step/whole_step.h"

namespace winnow::model::cuda {
namespace {

using LinearMaker = std::unique_ptr<LinearPath> (*)(const DeviceModel&, const MatrixWeights&,
                                                    const LinearCall&);

struct LinearEntry {
  bool (*takes)(const DeviceModel&, const LinearCall&);
  LinearMaker make;
  bool pads;
};

template <class Layers>
constexpr LinearEntry kEntry{&Layers::takes, &Layers::make, Layers::kPads};

// docs/lab/internals.md shows this table. A call goes to the first path that takes it; the last one
// takes every call.
constexpr std::array kLinearPaths{
    kEntry<SkinnyChain>,       // up to four GEMMs in one kernel
    kEntry<SmallBatchLayers>,  // weights in the stored order, Hopper's tensor cores
    kEntry<SkinnyLayers>,      // a GEMM per kernel
    kEntry<LargeBatchLayers>,  // cuBLASLt
};

std::size_t first_that_takes(const DeviceModel& model, const LinearCall& call) {
  const auto* found = std::ranges::find_if(
      kLinearPaths, [&](const LinearEntry& entry) { return entry.takes(model, call); });
  require(found != kLinearPaths.end(), "no linear path takes {} rows", call.rows);
  return static_cast<std::size_t>(found - kLinearPaths.begin());
}

}  // namespace

LinearPaths::LinearPaths(const DeviceModel& model, const MatrixWeights& matrices,
                         const LinearCall& call)
    : model_(model), matrices_(matrices), call_(call), paths_(kLinearPaths.size()) {
  constexpr int kAlike = 128;  // all larger numbers of rows have the same path
  for (int rows = 1; rows <= std::min(call.rows, kAlike); ++rows) {
    (void)of(rows);
  }
}

LinearPath& LinearPaths::of(int rows, bool adapts, bool ends) {
  LinearCall call = call_;
  call.rows = rows;
  call.adapts = adapts;
  call.ends = ends;
  const std::size_t place = first_that_takes(model_, call);
  if (!paths_[place]) {
    paths_[place] = kLinearPaths[place].make(model_, matrices_, call_);
  }
  return *paths_[place];
}

std::unique_ptr<StepKernel> make_step_kernel(const DeviceModel& model,
                                             const kvcache::cuda::DeviceCache& cache,
                                             const OutputHead& head) {
  return WholeStep::takes(model, cache) ? std::make_unique<WholeStep>(model, cache, head) : nullptr;
}

bool pads_steps(const DeviceModel& model, int sequences) {
  return kLinearPaths[first_that_takes(model,
                                       {.is_step = true, .may_pad = true, .rows = sequences})]
      .pads;
}

int most_step_sequences(int most_padded) {
  return std::max(SkinnyLayers::most(), padded_rows(most_padded));
}

}  // namespace winnow::model::cuda
