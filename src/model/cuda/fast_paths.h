// The table of fast paths, which chooses an implementation for each call.
#pragma once

#include <memory>
#include <vector>

#include "kvcache/cuda/device_cache.h"
#include "model/cuda/device_model.h"
#include "model/cuda/linear_path.h"
#include "model/cuda/matrix_weights.h"
#include "model/cuda/output_head.h"
#include "model/cuda/step_kernel.h"

namespace winnow::model::cuda {

/// Describes a call of a model's linear layers for the paths' predicates (takes()).
struct LinearCall {
  bool is_step = false;  // one token of each of `rows` sequences; else tokens of prompts
  bool may_pad = false;  // padding rows, which belong to no sequence, may be added
  bool adapts = false;   // some rows have adapters
  bool ends = false;     // of prompts: states behind the last layer are wanted of all rows
  int rows = 0;
};

/// The linear paths of one model for one purpose. The paths for calls of up to `call.rows` rows
/// without adapters are made in the constructor.
class LinearPaths {
 public:
  /// Both must outlive this. `call` describes all calls; its rows are the most of any call.
  LinearPaths(const DeviceModel& model, const MatrixWeights& matrices, const LinearCall& call);

  /// The first path of the table that takes `rows` rows. `adapts`, `ends`: see LinearCall.
  [[nodiscard]] LinearPath& of(int rows, bool adapts = false, bool ends = false);

 private:
  const DeviceModel& model_;
  const MatrixWeights& matrices_;
  LinearCall call_;
  std::vector<std::unique_ptr<LinearPath>> paths_;  // indexed as the table; null: not made
};

/// The kernel of whole steps if it takes this model and cache, else null. All arguments must
/// outlive it.
std::unique_ptr<StepKernel> make_step_kernel(const DeviceModel& model,
                                             const kvcache::cuda::DeviceCache& cache,
                                             const OutputHead& head);

/// Whether steps of so many sequences use a path that pads, if padding is allowed.
bool pads_steps(const DeviceModel& model, int sequences);
/// The most sequences of a step: as many as paths without padding take, and, if steps may be
/// padded, at least `most_padded` (0: no padding).
int most_step_sequences(int most_padded);

}  // namespace winnow::model::cuda
