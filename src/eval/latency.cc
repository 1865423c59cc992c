#include "eval/latency.h"

#include <algorithm>

#include "base/error.h"

namespace winnow::eval {

StepCost step_cost(const model::ModelSpec& model, double batch, double length,
                   const LatencyOptions& options) {
  require(options.flops_per_s > 0.0 && options.bytes_per_s > 0.0,
          "the peak and the bandwidth of the device are needed");
  const double n = model.layer_count();
  const double d = model.hidden;
  const double d_ff = model.feed_forward().intermediate;
  const double d_q = model.attention().query_width();
  const double d_kv = model.attention().key_width();
  const double entries = length / options.compression_ratio;
  // Weights that a step multiplies with: MLP, q and o, k and v, and the head.
  const double weights = n * (3.0 * d * d_ff + 2.0 * d * d_q + 2.0 * d * d_kv) + d * model.vocab;
  const double attention_flops = n * batch * 4.0 * d_q * entries;

  StepCost cost;
  cost.flops = 2.0 * batch * weights + attention_flops;
  cost.weight_reads = options.weight_bytes * weights;
  cost.kv_reads = options.kv_bytes * n * batch * 2.0 * entries * d_kv;
  cost.seconds = std::max(cost.flops / options.flops_per_s, cost.reads() / options.bytes_per_s);
  cost.kv_share =
      cost.is_memory_bound(options) ? cost.kv_reads / cost.reads() : attention_flops / cost.flops;
  return cost;
}

}  // namespace winnow::eval
