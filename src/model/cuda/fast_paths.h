// Which path computes what: the table of fast paths, and what runs where none fits.
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

/// What the linear layers of a model are asked for; paths' predicates (takes()) read it.
struct LinearCall {
  bool is_step = false;  // a token of each of `rows` sequences; else tokens of prompts
  bool may_pad = false;  // rows may be added that belong to no sequence
  bool adapts = false;   // some rows have adapters
  int rows = 0;
};

/// The linear paths of one model for one purpose. Those that the table gives to calls of up to
/// `call.rows` rows without adapters are made beforehand.
class LinearPaths {
 public:
  /// Both must outlive this. `call`: all calls, with the most rows that they have.
  LinearPaths(const DeviceModel& model, const MatrixWeights& matrices, const LinearCall& call);

  /// The first path of the table that takes so many rows.
  [[nodiscard]] LinearPath& of(int rows, bool adapts = false);

 private:
  const DeviceModel& model_;
  const MatrixWeights& matrices_;
  LinearCall call_;
  std::vector<std::unique_ptr<LinearPath>> paths_;  // by place in the table; null: not made
};

/// The first kernel of the table that takes whole steps of this model and cache, or null. All must
/// outlive it.
std::unique_ptr<StepKernel> make_step_kernel(const DeviceModel& model,
                                             const kvcache::cuda::DeviceCache& cache,
                                             const OutputHead& head);

/// Whether steps of so many sequences go to a path that pads, if it may.
bool pads_steps(const DeviceModel& model, int sequences);
/// Sequences of one step: as many as paths without padding take, and, if steps may be padded, at
/// least `most_padded` (0: they may not).
int most_step_sequences(int most_padded);

}  // namespace winnow::model::cuda
