#include "model/cuda/device_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "model/channels.h"
#include "model/cuda/routed_experts.h"
#include "model/norms.h"
#include "model/supported.h"
#include "ops/cuda/recurrent/recurrent_rows.h"
#include "ops/cuda/rope.h"

namespace winnow::model::cuda {
namespace {

const ModelSpec& checked(const ModelSpec& spec) {
  if (const RecurrentSpec* recurrent = spec.recurrent()) {
    if (recurrent->has_matrices()) {
      ops::cuda::check_recurrent(recurrent->heads, recurrent->taps);
    } else {
      ops::cuda::check_taps(recurrent->taps);
    }
    const int width = recurrent->heads.value_width();
    require(width % 8 == 0,
            "--device cuda: recurrent layers of {} value channels; a multiple of 8 is needed",
            width);
  }
  require(!spec.dms || spec.dms->adapter.kind == AdapterSpec::Kind::linear,
          "--device cuda: probes that are more than a projection (KVzap's MLP, Fast KVzip) run on "
          "the CPU only");
  if (const char* what = beyond_devices(spec)) {
    fail("--device cuda: the model has {}, which run on the CPU only", what);
  }
  for (const LayerSpec& layer : spec.layers) {
    if (const AttentionSpec* attention = layer.attention()) {
      require(attention->head_dim % 8 == 0,
              "--device cuda: heads of {} channels; a multiple of 8 is needed",
              attention->head_dim);
    }
  }
  const int embedded = spec.layer_embeddings ? spec.layer_embeddings->width : 0;
  for (const int width : {spec.hidden, spec.dense_width(), embedded}) {
    require(width % 8 == 0, "--device cuda: layers of {} channels; a multiple of 8 is needed",
            width);
  }
  if (const FeedForwardSpec* what = spec.experts()) {
    require(spec.hidden % 16 == 0 && what->intermediate % 8 == 0,
            "--device cuda: experts of {} channels in layers of {}; multiples of 8 and 16 are "
            "needed",
            what->intermediate, spec.hidden);
    require(what->experts->count <= ops::cuda::kMostExperts,
            "--device cuda: {} experts; at most {} are taken", what->experts->count,
            ops::cuda::kMostExperts);
  }
  return spec;
}

// Rejects models whose decisions another rank's query channel takes: devices do not exchange them.
parallel::cuda::DeviceRanks* with_exchange(const ModelSpec& spec,
                                           parallel::cuda::DeviceRanks* ranks) {
  const bool per_layer = (spec.dms && spec.dms->per_layer) || (spec.dmc && spec.dmc->per_layer);
  require(ranks == nullptr || !per_layer || !borrows_channels(spec),
          "--tensor-parallel with --device cuda: a query channel decides for each layer, and ranks "
          "exchange such decisions on CPUs only: probes (--decisions adapter) can do without");
  const AttentionSpec& decides = spec.compressing_attention();
  require(!decides.group_share || !borrows_channels(spec),
          "--tensor-parallel with --device cuda: a query channel decides for each KV head, and the "
          "ranks that hold the same one exchange decisions on CPUs only: use at most as many ranks "
          "as KV heads");
  return ranks;
}

// Uploaded norm weights already include the 1 of rms_plus_one.
void forget_offset(NormSpec& norm) {
  if (norm.kind == NormSpec::Kind::rms_plus_one) {
    norm.kind = NormSpec::Kind::rms;
  }
}

// Ignores sliding windows: the cache handles them.
bool is_plain(ModelSpec spec) {
  forget_offset(spec.final_norm);
  for (LayerSpec& layer : spec.layers) {
    forget_offset(layer.norm);
    auto* attention = std::get_if<AttentionSpec>(&layer.mixer);
    if (attention != nullptr && attention->reach.kind == Reach::Kind::sliding) {
      attention->reach = {};
    }
  }
  return beyond_plain(spec) == nullptr;
}

// Also ignores sinks, which attention handles, and the experts' activation.
bool has_plain_layers(ModelSpec spec) {
  if (spec.experts() == nullptr) {
    return is_plain(std::move(spec));
  }
  if (!RoutedExperts::routes_few(spec)) {
    return false;
  }
  for (LayerSpec& layer : spec.layers) {
    auto* attention = std::get_if<AttentionSpec>(&layer.mixer);
    FeedForwardSpec& part = layer.feed_forward;
    if (attention == nullptr || !part.experts) {
      return false;  // layers of another kind
    }
    if (part.experts->beside) {
      return false;
    }
    attention->sinks = false;
    if (part.dense_width() == 0) {
      part.activation = ops::Activation::silu;
      part.clamp = 0.0F;
    }
    if (part.bias && part.dense_width() > 0) {
      return false;  // a bias of the shared expert
    }
    part.experts.reset();
  }
  return is_plain(std::move(spec));
}

// Projection::rotary, for heads that have cached_dim channels in the cache.
int rotary_of(const AttentionSpec& attention, int cached_dim) {
  const int channels = attention.rope ? attention.rope->channels() : 0;
  return channels == cached_dim ? -1 : channels;
}

// Checks that all weights fit, before any of them is copied.
const Weights& with_room(const Weights& weights, ops::cuda::DeviceWeightFormat format) {
  constexpr double kGib = 0x1p30;
  const std::size_t needed = DeviceWeights::bytes_of(weights, format);
  const std::size_t free = winnow::cuda::free_memory();
  require(needed <= free,
          "--device cuda: the weights need {:.2f} GiB in {}, but of the device's {:.2f} GiB only "
          "{:.2f} are free",
          static_cast<double>(needed) / kGib, format_name(format),
          static_cast<double>(winnow::cuda::total_memory()) / kGib,
          static_cast<double>(free) / kGib);
  return weights;
}

}  // namespace

DeviceModel::DeviceModel(const Model& model, ops::cuda::DeviceWeightFormat format,
                         parallel::cuda::DeviceRanks* ranks)
    : model_((checked(model.spec()), model)),
      sources_(model.spec().shared_layers()),
      ranks_(with_exchange(model.spec(), ranks)),
      weights_(model.spec(), with_room(model.weights(), format), format),
      frequencies_(std::span<const float>(model.ropes().frequencies())),
      rope_factors_(std::span<const float>(model.ropes().factors())),
      plain_(cuda::is_plain(model.spec())),
      plain_layers_(cuda::has_plain_layers(model.spec())) {}

std::vector<int> DeviceModel::token_cuts() const {
  const int ranks = ranks_ != nullptr ? ranks_->size() : 1;
  std::vector<int> cuts;
  for (int rank = 0; rank < ranks; ++rank) {
    cuts.push_back(share_of(vocab(), {rank, ranks}).begin);
  }
  cuts.push_back(vocab());
  return cuts;
}

int DeviceModel::query_width() const {
  int widest = 0;
  for (int layer = 0; layer < layers(); ++layer) {
    widest = std::max(widest, attention(layer) != nullptr ? query_width(layer) : 0);
  }
  return widest;
}

int DeviceModel::qkv_width() const {
  int widest = 0;
  for (int layer = 0; layer < layers(); ++layer) {
    widest = std::max(widest, attention(layer) != nullptr ? qkv_width(layer) : 0);
  }
  return widest;
}

int DeviceModel::mixer_width() const {
  const RecurrentSpec* mixer = spec().recurrent();
  return std::max(query_width(), mixer != nullptr ? mixer->heads.value_width() : 0);
}

void DeviceModel::final_norm(std::span<float> state) const {
  const ops::Matrix<float> row{state.data(), 1, state.size()};
  normalize(spec().final_norm, row, row, model_.weights().norm, model_.weights().norm_bias);
}

float DeviceModel::scale() const {
  return spec().attention().scale;
}

void DeviceModel::compute_angles(float2* tables, std::size_t stride, const std::int32_t* positions,
                                 int tokens, cudaStream_t stream) const {
  const int half = rotary_channels() / 2;
  for (int i = 0; i < rope_tables(); ++i) {
    ops::cuda::rope_angles(tables + static_cast<std::size_t>(i) * stride,
                           frequencies_.data() + i * half, half, positions, tokens, stream,
                           model_.ropes().ropes()[static_cast<std::size_t>(i)].attention_factor);
  }
}

kvcache::cuda::Projection DeviceModel::projection(int layer, const float* hidden,
                                                  const StepAngles& angles) const {
  using Kind = kvcache::cuda::DecisionSource::Kind;
  const DeviceLayerWeights& w = this->layer(layer);
  const AttentionSpec& attention = *spec().layer(layer).attention();
  const bool is_whole = attention.query_key_norm == AttentionSpec::QueryKeyNorm::whole;
  const int cached_dim = spec().cached_head_dim();
  const auto table = static_cast<std::size_t>(std::max(model_.ropes().table_of(layer), 0));
  const QueryGrowth growth = attention.query_growth.value_or(QueryGrowth{});
  // The linear path handles norms over all heads, and the biases before them.
  kvcache::cuda::Projection projection{
      .kv_heads = attention.kv_heads,
      .group = attention.group(),
      .head_dim = attention.head_dim == cached_dim ? 0 : attention.head_dim,
      .queries_alone = attention.shares.has_value(),
      .values_are_keys = attention.values_are_keys,
      .bias = is_whole ? nullptr : data_or_null(w.qkv_bias),
      .query_norm = is_whole ? nullptr : data_or_null(w.query_norm),
      .key_norm = is_whole ? nullptr : data_or_null(w.key_norm),
      .value_norm = data_or_null(w.value_norm),
      .eps = spec().layer(layer).norm.eps,
      .own_norms = attention.query_key_norm == AttentionSpec::QueryKeyNorm::own_per_head,
      .norms_center = attention.query_key_norm != AttentionSpec::QueryKeyNorm::none &&
                      spec().layer(layer).norm.centers(),
      .norms_after_rope = attention.norms_after_rope,
      .rotary = rotary_of(attention, cached_dim),
      .angle_planes = rotary_channels() / 2,
      .interleaved = attention.rope && attention.rope->interleaved,
      .angles = angles.tables + table * angles.stride,
      .query_growth = {growth.growth, growth.period, growth.first},
      .decision = {}};
  if (!spec().layer(layer).compresses()) {
    return projection;
  }
  auto& decision = projection.decision;
  if (const auto drawn = model_.drawn_decisions()) {
    decision.is_drawn = true;
    decision.drawn = *drawn;
  }
  if (spec().dmc) {
    decision.kind = Kind::merge;
    decision.offset = spec().dmc->offset;
    decision.per_layer = spec().dmc->per_layer;
    decision.pooled = spec().dmc->pooled;
    decision.channel = 0;
    decision.clear_after_rope = true;
  }
  if (!spec().dms) {
    return projection;
  }
  const DmsConfig& dms = *spec().dms;
  decision.per_layer = dms.per_layer;
  decision.scale = dms.scale;
  decision.offset = dms.offset;
  decision.evicts = dms.evict;
  if (dms.source == DmsConfig::Source::borrowed) {
    decision.kind = Kind::channel;
    decision.channel = dms.channel < 0 ? attention.head_dim + dms.channel : dms.channel;
    decision.clear_after_rope = dms.rezero_after_rope;
  } else {
    decision.kind = Kind::probe;
    decision.hidden = hidden;
    decision.norm = data_or_null(w.adapter_norm);
    decision.projection = w.adapter_projection.data();
    decision.bias = data_or_null(w.adapter_bias);
    decision.width = spec().hidden;
    decision.eps = spec().final_norm.eps;
  }
  return projection;
}

}  // namespace winnow::model::cuda
