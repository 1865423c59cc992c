#include "eval/latency.h"

#include <algorithm>

#include "base/error.h"
#include "model/cost.h"

namespace winnow::eval {
namespace {

// The cost of one sequence's attention to its cache in a step.
struct CacheCost {
  double flops = 0.0;
  double numbers = 0.0;  // channels of keys and values read
  double state = 0.0;    // bytes of recurrent layers' state, read and written
};

CacheCost cache_cost(const model::ModelSpec& model, double length, double ratio) {
  CacheCost cost;
  for (const model::LayerSpec& layer : model.layers) {
    if (const model::AttentionSpec* attention = layer.attention()) {
      const double entries =
          visible_entries(attention->reach, length) / (layer.compresses() ? ratio : 1.0);
      cost.flops += 2.0 * (attention->query_width() + attention->attended_width()) * entries;
      cost.numbers += (attention->key_width() + attention->value_width()) * entries;
    }
    if (layer.recurrent() != nullptr) {
      cost.flops += 6.0 * layer.recurrent()->heads.state_size();
      cost.state += 2.0 * sizeof(float) * layer.recurrent()->state_size();
    }
  }
  return cost;
}

}  // namespace

StepCost step_cost(const model::ModelSpec& model, double batch, double length,
                   const LatencyOptions& options) {
  require(options.flops_per_s > 0.0 && options.bytes_per_s > 0.0,
          "the peak and the bandwidth of the device are needed");
  const double weights = multiplied_weights(model);
  const CacheCost cache = cache_cost(model, length, options.compression_ratio);

  StepCost cost;
  cost.flops = batch * (2.0 * weights + cache.flops);
  cost.weight_reads = options.weight_bytes * read_weights(model, batch);
  cost.kv_reads = batch * (options.kv_bytes * cache.numbers + cache.state);
  cost.seconds = std::max(cost.flops / options.flops_per_s, cost.reads() / options.bytes_per_s);
  cost.kv_share = cost.is_memory_bound(options) ? cost.kv_reads / cost.reads()
                                                : batch * cache.flops / cost.flops;
  return cost;
}

}  // namespace winnow::eval
