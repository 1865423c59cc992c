#include "model/cost.h"

#include <algorithm>
#include <cmath>

namespace winnow::model {
namespace {

// `taken`: what attention takes of a token (ModelSpec::attention_inputs).
double weights_of(const AttentionSpec& attention, double hidden, double taken) {
  if (const auto& latent = attention.latent) {
    const double inputs = attention.query_inputs(static_cast<int>(hidden));
    const double up = 1.0 * attention.heads * (latent->key_dim + latent->value_dim) * latent->rank;
    return hidden * (latent->query_rank + attention.key_width() + attention.output_width()) +
           inputs * attention.query_outputs() + up;
  }
  return hidden * attention.output_width() +
         taken *
             (attention.query_outputs() + (attention.projects_keys() ? attention.key_width() : 0) +
              (attention.projects_values() ? attention.value_width() : 0));
}

double weights_of(const RecurrentSpec& recurrent, double hidden) {
  return hidden * (recurrent.projected() + recurrent.heads.value_width());
}

// `taken`: the number of experts that count.
double weights_of(const FeedForwardSpec& part, double hidden, double taken) {
  const double channel = hidden * (part.gated ? 3.0 : 2.0);
  const double dense = channel * part.dense_width();
  if (!part.experts) {
    return dense;
  }
  const double routers = hidden * (part.experts->count + (part.experts->shared_gate ? 1 : 0));
  return dense + routers + channel * part.intermediate * taken;
}

// taken(experts): the number of a layer's experts that count.
template <class Taken>
double weights_of(const ModelSpec& spec, const Taken& taken) {
  double weights = 1.0 * spec.hidden * spec.head_rows();
  if (spec.draft_head) {
    weights += 1.0 * spec.hidden * spec.draft_head->fused(spec.hidden);
  }
  for (const LayerSpec& layer : spec.layers) {
    const FeedForwardSpec& part = layer.feed_forward;
    if (const AttentionSpec* attention = layer.attention()) {
      weights += weights_of(*attention, spec.hidden, spec.attention_inputs());
    }
    if (const RecurrentSpec* recurrent = layer.recurrent()) {
      weights += weights_of(*recurrent, spec.hidden);
    }
    if (spec.layer_embeddings) {  // its part of the projection, the gate and the output
      weights += 3.0 * spec.hidden * spec.layer_embeddings->width;
    }
    weights += weights_of(part, spec.hidden, part.experts ? taken(*part.experts) : 0.0);
  }
  return weights;
}

}  // namespace

double multiplied_weights(const ModelSpec& spec) {
  return weights_of(spec, [](const ExpertsSpec& experts) { return 1.0 * experts.active; });
}

double read_weights(const ModelSpec& spec, double tokens) {
  return weights_of(spec, [tokens](const ExpertsSpec& experts) {
    return experts.count * share_of_experts(experts, tokens);
  });
}

double stored_weights(const ModelSpec& spec) {
  return weights_of(spec, [](const ExpertsSpec& experts) { return 1.0 * experts.count; });
}

double stored_weights_beside_experts(const ModelSpec& spec) {
  return weights_of(spec, [](const ExpertsSpec&) { return 0.0; });
}

double share_of_experts(const ExpertsSpec& experts, double tokens) {
  return 1.0 - std::pow(1.0 - 1.0 * experts.active / experts.count, tokens);
}

double visible_entries(const Reach& reach, double length) {
  switch (reach.kind) {
    case Reach::Kind::full:
      return length;
    case Reach::Kind::sliding:
      return std::min<double>(length, reach.width);
    case Reach::Kind::chunked:
      return length - reach.width * std::floor(std::max(0.0, length - 1.0) / reach.width);
  }
  return length;
}

double mean_visible_entries(const Reach& reach, double length) {
  const double width = std::min<double>(length, reach.width);
  switch (reach.kind) {
    case Reach::Kind::full:
      return length / 2.0;
    case Reach::Kind::sliding:
      return width - width * width / (2.0 * length);
    case Reach::Kind::chunked: {
      const double chunks = std::floor(length / width);
      const double rest = length - chunks * width;
      return (chunks * width * width + rest * rest) / (2.0 * length);
    }
  }
  return length / 2.0;
}

double dense_entries(const ModelSpec& spec, double length) {
  double entries = 0.0;
  for (const LayerSpec& layer : spec.layers) {
    if (const AttentionSpec* attention = layer.attention(); layer.stores()) {
      entries += attention->kv_heads * visible_entries(attention->reach, length);
    }
  }
  return entries;
}

}  // namespace winnow::model
