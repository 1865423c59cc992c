// Small models with random weights, for tests of the trainer.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "model/spec_of.h"
#include "train/decoder.h"
#include "train/head.h"
#include "train/parameters.h"

namespace winnow::train::testing {

inline constexpr winnow::testing::Sizes kTinySizes{.hidden = 24,
                                                   .layers = 2,
                                                   .heads = 4,
                                                   .kv_heads = 2,
                                                   .head_dim = 8,
                                                   .intermediate = 40,
                                                   .vocab = 33,
                                                   .max_positions = 128};

inline model::ModelSpec tiny_config(const std::string& family,
                                    const winnow::testing::Sizes& sizes = kTinySizes,
                                    nlohmann::json more = nlohmann::json::object()) {
  more["torch_dtype"] = "float32";
  more["tie_word_embeddings"] = family != "qwen2";
  return winnow::testing::spec_of(family, sizes, more);
}

/// Smooth enough for finite differences: a decision scale of 100 is a cliff.
inline model::DmsConfig tiny_dms(model::DmsConfig::Source source) {
  model::DmsConfig dms;
  dms.window = 3;
  dms.scale = 2.0F;
  dms.offset = 0.5F;
  dms.source = source;
  return dms;
}

/// Whether training does not change a tensor (train/tensors.h).
inline bool is_constant(std::string_view name) {
  return name.ends_with("layer_scalar") || name.ends_with("per_expert_scale");
}

/// Weights with a usual deviation; norms and factors near 1.
inline void fill_random(Parameters& parameters, std::uint64_t seed) {
  Random random(seed);
  for (const Parameter& parameter : parameters.list()) {
    const bool norm = parameter.name.find("norm") != std::string::npos ||
                      parameter.name.ends_with("scale") || is_constant(parameter.name);
    const double spread = norm ? 0.2 : 1.0 / std::sqrt(static_cast<double>(parameter.shape.back()));
    for (float& value : parameters.values(parameter.name)) {
      value = static_cast<float>((norm ? 1.0 : 0.0) + spread * random.normal());
    }
  }
}

/// Random tokens; documents begin at the given places.
inline Batch random_batch(std::size_t tokens, int vocab, const std::vector<std::int32_t>& documents,
                          std::uint64_t seed) {
  Random random(seed);
  Batch batch;
  for (std::size_t t = 0; t < tokens; ++t) {
    const auto draw = [&] {
      return static_cast<std::int32_t>(random.bits() % static_cast<std::uint64_t>(vocab));
    };
    batch.tokens.push_back(draw());
    batch.targets.push_back(draw());
    batch.weights.push_back(t % 5 == 3 ? 0.0F : 0.5F + static_cast<float>(t % 3));
    const auto next = std::ranges::upper_bound(documents, static_cast<std::int32_t>(t));
    batch.first_key.push_back(*std::prev(next));
  }
  return batch;
}

/// A model whose parameters are all trained, and one pass through it.
class TinyModel {
 public:
  TinyModel(model::ModelSpec model, std::size_t tokens, Keep keep, std::uint64_t seed = 1,
            Trained trained = Trained::everything)
      : spec(std::move(model)),
        all(spec, Trained::everything),
        trained_(spec, trained),
        decoder(spec, tokens, keep) {
    fill_random(all, seed);
    weights = bind_weights(spec, [this](const std::string& name) {
      return all.contains(name) ? std::optional(all.view(name)) : std::nullopt;
    });
    context.compute = DType::f32;
    context.workspace = &workspace;
  }

  /// The loss, and its gradients in trained().gradients(): cross entropy, or divergence from the
  /// predictions of `teacher` on the same batch.
  double step(const Batch& batch, const DecisionPass& pass, const DecisionLoss& loss = {},
              TinyModel* teacher = nullptr) {
    std::ranges::fill(trained_.gradients(), 0.0F);
    if (teacher != nullptr) {
      teacher->decoder.forward(context, teacher->weights, batch, {});
    }
    const double result = forward_loss(batch, pass, teacher);
    const std::vector<DecisionLoss> losses(static_cast<std::size_t>(spec.layer_count()), loss);
    decoder.backward(context, weights, batch, pass, losses, trained_.gradient_views(spec),
                     stream_gradient());
    return result;
  }

  /// Only the loss, with a teacher that has read the batch in an earlier step. Adds only to the
  /// head's gradients.
  double forward_loss(const Batch& batch, const DecisionPass& pass, TinyModel* teacher) {
    decoder.forward(context, weights, batch, pass);
    stream_gradient_.assign(batch.size() * static_cast<std::size_t>(spec.hidden), 0.0F);
    const Gradients gradients = trained_.gradient_views(spec);
    const HeadInput student{&weights, decoder.hidden()};
    if (teacher == nullptr) {
      return language_model_loss(context, spec, batch, student, gradients, stream_gradient());
    }
    const HeadInput expected{&teacher->weights, teacher->decoder.hidden()};
    return distillation_loss(context, spec, batch, ops::Divergence::forward, student, expected,
                             gradients, stream_gradient());
  }

  Parameters& trained() { return trained_; }

  model::ModelSpec spec;
  Parameters all;

 private:
  ops::Matrix<float> stream_gradient() {
    const auto hidden = static_cast<std::size_t>(spec.hidden);
    return {stream_gradient_.data(), stream_gradient_.size() / hidden, hidden};
  }

  Parameters trained_;
  std::vector<float> stream_gradient_;  // [T, hidden]

 public:
  Decoder decoder;
  Weights weights;
  ops::Workspace workspace;
  ops::Context context;
};

}  // namespace winnow::train::testing
