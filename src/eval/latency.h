// The latency model of the DMS paper (appendix G): the cost of a decode step, and the cache's share
// of it.
#pragma once

#include "model/config.h"

namespace winnow::eval {

struct LatencyOptions {
  double flops_per_s = 0.0;   // peak of the device
  double bytes_per_s = 0.0;   // its memory's bandwidth
  double weight_bytes = 2.0;  // per weight
  double kv_bytes = 2.0;      // per channel of an entry
  double compression_ratio = 1.0;
};

struct StepCost {
  double flops = 0.0;
  double weight_reads = 0.0;  // bytes
  double kv_reads = 0.0;      // bytes
  double seconds = 0.0;       // max(flops / peak, reads / bandwidth): ideal overlap
  double kv_share = 0.0;      // of the time; memory-bound: kv_reads / reads; else of flops

  [[nodiscard]] double reads() const { return weight_reads + kv_reads; }
  [[nodiscard]] bool is_memory_bound(const LatencyOptions& options) const {
    return reads() / options.bytes_per_s >= flops / options.flops_per_s;
  }
};

/// One decode step of `batch` sequences of `length` tokens each. Equations 2, 3 and 6 of the paper,
/// with d_kv where its text prints d_ff in the third term of the weights (as its parameter count
/// implies) and the actual widths of q and o (heads x head_dim, which need not be d). A cache
/// with compression ratio CR needs 1/CR of the reads and products; sliding and chunked layers are
/// not compressed.
StepCost step_cost(const model::ModelSpec& model, double batch, double length,
                   const LatencyOptions& options);

}  // namespace winnow::eval
