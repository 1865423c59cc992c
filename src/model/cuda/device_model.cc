#include "model/cuda/device_model.h"

#include <cmath>

#include "base/error.h"
#include "model/rope_frequencies.h"

namespace winnow::model::cuda {
namespace {

const ModelConfig& checked(const ModelConfig& config) {
  for (const int width : {config.hidden, config.intermediate}) {
    require(width % 8 == 0, "--device cuda: layers of {} channels; a multiple of 8 is needed",
            width);
  }
  return config;
}

// Before any of it is copied.
const Weights& with_room(const Weights& weights, ops::cuda::DeviceWeightFormat format) {
  constexpr double kGib = 0x1p30;
  const std::size_t needed = DeviceWeights::bytes_of(weights, format);
  const std::size_t free = winnow::cuda::free_memory();
  require(needed <= free,
          "--device cuda: the weights take {:.2f} GiB in {}, but of the device's {:.2f} GiB only "
          "{:.2f} are free",
          static_cast<double>(needed) / kGib, format_name(format),
          static_cast<double>(winnow::cuda::total_memory()) / kGib,
          static_cast<double>(free) / kGib);
  return weights;
}

}  // namespace

DeviceModel::DeviceModel(const Model& model, ops::cuda::DeviceWeightFormat format)
    : model_((checked(model.config()), model)),
      weights_(with_room(model.weights(), format), format),
      frequencies_(
          std::span<const float>(rope_frequencies(model.config().rope, model.config().head_dim))) {}

float DeviceModel::scale() const {
  return 1.0F / std::sqrt(static_cast<float>(config().head_dim));
}

kvcache::cuda::Projection DeviceModel::projection(int layer, const float* hidden,
                                                  const float2* angles) const {
  using Kind = kvcache::cuda::DecisionSource::Kind;
  const DeviceLayerWeights& w = this->layer(layer);
  kvcache::cuda::Projection projection{.kv_heads = config().kv_heads,
                                       .group = config().group(),
                                       .bias = data_or_null(w.qkv_bias),
                                       .query_norm = data_or_null(w.query_norm),
                                       .key_norm = data_or_null(w.key_norm),
                                       .eps = config().norm_eps,
                                       .angles = angles,
                                       .decision = {}};
  auto& decision = projection.decision;
  if (const auto drawn = model_.drawn_decisions()) {
    decision.is_drawn = true;
    decision.drawn = *drawn;
  }
  if (config().dmc) {
    decision.kind = Kind::merge;
    decision.offset = config().dmc->offset;
    decision.per_layer = config().dmc->per_layer;
    decision.pooled = config().dmc->pooled;
    decision.channel = 0;
    decision.clear_after_rope = true;
  }
  if (!config().dms) {
    return projection;
  }
  const DmsConfig& dms = *config().dms;
  decision.per_layer = dms.per_layer;
  decision.scale = dms.scale;
  // Evict iff scale * x - offset > 0; a model that only reads its decisions never does.
  decision.offset = dms.evict ? dms.offset : HUGE_VALF;
  if (dms.source == DmsConfig::Source::borrowed) {
    decision.kind = Kind::channel;
    decision.channel = dms.channel < 0 ? config().head_dim + dms.channel : dms.channel;
    decision.clear_after_rope = dms.rezero_after_rope;
  } else {
    decision.kind = Kind::probe;
    decision.hidden = hidden;
    decision.norm = w.adapter_norm.data();
    decision.projection = w.adapter_projection.data();
    decision.bias = data_or_null(w.adapter_bias);
    decision.width = config().hidden;
    decision.eps = config().norm_eps;
  }
  return projection;
}

}  // namespace winnow::model::cuda
