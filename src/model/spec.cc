#include "model/spec.h"

#include <algorithm>
#include <cassert>

#include "base/error.h"

namespace winnow::model {
namespace {

// What all attention layers of one model share today: one cache, one page size, one head shape.
AttentionSpec shape_of(AttentionSpec attention) {
  attention.reach = {};
  attention.rope.reset();
  attention.query_growth.reset();
  return attention;
}

// The first property of a layer that nothing computes yet; null if there is none.
const char* unsupported(const AttentionSpec& attention) {
  if (attention.value_dim != attention.head_dim) {
    return "values of another size than keys";
  }
  return attention.reach.kind == Reach::Kind::chunked ? "chunked attention" : nullptr;
}

const char* unsupported(const ModelSpec& spec, const LayerSpec& layer) {
  if (const AttentionSpec* attention = layer.attention()) {
    if (const char* what = unsupported(*attention)) {
      return what;
    }
    if (shape_of(*attention) != shape_of(spec.attention())) {
      return "attention layers of different shapes";
    }
  } else if (*layer.recurrent() != *spec.recurrent()) {
    return "recurrent layers of different shapes";
  }
  if (layer.feed_forward.experts && !layer.feed_forward.gated) {
    return "experts without a gate";
  }
  return layer.feed_forward.experts && layer.feed_forward != *spec.experts()
             ? "experts of different shapes"
             : nullptr;
}

const char* beyond_plain(const AttentionSpec& attention) {
  if (!attention.rope || attention.rope->channels() != attention.head_dim) {
    return "heads that RoPE does not rotate as a whole";
  }
  if (attention.query_key_norm == AttentionSpec::QueryKeyNorm::whole) {
    return "norms over all heads together";
  }
  if (attention.reach.kind != Reach::Kind::full) {
    return "sliding windows";
  }
  if (attention.output_gate) {
    return "gated attention outputs";
  }
  if (attention.query_growth) {
    return "queries scaled by their position";
  }
  if (attention.sinks) {
    return "sink logits";
  }
  return attention.soft_cap > 0.0F ? "capped scores" : nullptr;
}

const char* beyond_plain(const LayerSpec& layer) {
  if (layer.attention() == nullptr) {
    return "recurrent layers";
  }
  if (!layer.norm_before || layer.norm_after) {
    return "norms after a layer's parts";
  }
  if (layer.norm.kind != NormSpec::Kind::rms) {
    return "norm weights stored minus 1";
  }
  if (layer.residual_multiplier != 1.0F) {
    return "multipliers of the residual stream";
  }
  if (layer.feed_forward.experts) {
    return "experts";
  }
  if (layer.feed_forward.activation != ops::Activation::silu || layer.feed_forward.clamp > 0.0F) {
    return "activations other than SiLU";
  }
  if (!layer.feed_forward.gated) {
    return "feed-forward layers without a gate";
  }
  return beyond_plain(*layer.attention());
}

}  // namespace

const AttentionSpec& ModelSpec::attention() const {
  const auto found = std::ranges::find_if(
      layers, [](const LayerSpec& layer) { return layer.attention() != nullptr; });
  assert(found != layers.end());
  return *found->attention();
}

const RecurrentSpec* ModelSpec::recurrent() const {
  const auto found = std::ranges::find_if(
      layers, [](const LayerSpec& layer) { return layer.recurrent() != nullptr; });
  return found == layers.end() ? nullptr : found->recurrent();
}

int ModelSpec::dense_width() const {
  int widest = 0;
  for (const LayerSpec& layer : layers) {
    widest = std::max(widest, layer.feed_forward.dense_width());
  }
  return widest;
}

const FeedForwardSpec* ModelSpec::experts() const {
  const auto found = std::ranges::find_if(
      layers, [](const LayerSpec& layer) { return layer.feed_forward.experts.has_value(); });
  return found == layers.end() ? nullptr : &found->feed_forward;
}

int ModelSpec::attention_before(int index) const {
  return static_cast<int>(
      std::count_if(layers.begin(), layers.begin() + index,
                    [](const LayerSpec& layer) { return layer.attention() != nullptr; }));
}

int ModelSpec::compressing_before(int index) const {
  return static_cast<int>(std::count_if(layers.begin(), layers.begin() + index,
                                        [](const LayerSpec& layer) { return layer.compresses(); }));
}

const char* beyond_plain(const ModelSpec& spec) {
  for (const LayerSpec& layer : spec.layers) {
    if (const char* what = beyond_plain(layer)) {
      return what;
    }
    if (layer != spec.layers.front()) {
      return "layers that differ";
    }
  }
  if (spec.final_norm.kind != NormSpec::Kind::rms) {
    return "norm weights that count from 1";
  }
  if (spec.final_soft_cap > 0.0F) {
    return "capped logits";
  }
  return spec.embedding_multiplier != 1.0F || spec.logit_multiplier != 1.0F
             ? "multipliers of embeddings or logits"
             : nullptr;
}

void require_supported(const ModelSpec& spec, const std::string& where) {
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    const char* what = unsupported(spec, spec.layers[i]);
    require(what == nullptr, "{}: layer {} asks for {}, which winnow does not compute", where, i,
            what);
  }
}

}  // namespace winnow::model
