#include "train/decisions.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "base/random.h"
#include "ops/sampled_decisions.h"

namespace winnow::train {
namespace {

// A noisy logit whose sigmoid is exactly 0 or 1.
constexpr float kCertain = 1e4F;

// The decision on `token - shift` is in row `token` if both are in one document.
bool concerns(std::span<const std::int32_t> first_key, std::size_t token, std::size_t shift) {
  return token >= shift && static_cast<std::size_t>(first_key[token]) + shift <= token;
}

}  // namespace

bool decides_per_layer(const model::ModelSpec& spec) {
  return (spec.dms && spec.dms->per_layer) || (spec.dmc && spec.dmc->per_layer);
}

std::size_t decision_count(const model::ModelSpec& spec) {
  return decides_per_layer(spec) ? 1
                                 : static_cast<std::size_t>(spec.compressing_attention().kv_heads);
}

std::size_t decisions_of_model(const model::ModelSpec& spec) {
  return spec.dms || spec.dmc
             ? static_cast<std::size_t>(spec.compressing_before(spec.layer_count())) *
                   decision_count(spec)
             : 0;
}

int decision_shift(const model::ModelSpec& spec) {
  return spec.dms ? spec.dms->shift : 1;
}

float logit_scale(const model::ModelSpec& spec) {
  return spec.dms ? spec.dms->scale : 1.0F;
}

void to_logits(const model::ModelSpec& spec, ops::Matrix<float> x) {
  const float scale = logit_scale(spec);
  const float offset = spec.dms ? spec.dms->offset : spec.dmc->offset;
  for (std::size_t t = 0; t < x.rows; ++t) {
    for (float& logit : x.row(t)) {
      logit = scale * logit - offset;
    }
  }
}

void to_alphas(const DecisionPass& pass, ops::Matrix<float> alphas,
               ops::Matrix<const float> noisy) {
  const bool hard = pass.mode == DecisionPass::Mode::hard;
  for (std::size_t t = 0; t < noisy.rows; ++t) {
    for (std::size_t head = 0; head < alphas.cols; ++head) {
      const float z = noisy.row(t)[std::min(head, noisy.cols - 1)];
      alphas.row(t)[head] = hard ? (z > 0.0F ? 1.0F : 0.0F) : 1.0F / (1.0F + std::exp(-z));
    }
  }
}

void to_alphas_backward(const DecisionPass& pass, ops::Matrix<float> dlogits,
                        ops::Matrix<const float> dalphas, ops::Matrix<const float> alphas) {
  for (std::size_t t = 0; t < alphas.rows; ++t) {
    for (std::size_t head = 0; head < alphas.cols; ++head) {
      const float alpha = alphas.row(t)[head];
      dlogits.row(t)[std::min(head, dlogits.cols - 1)] +=
          dalphas.row(t)[head] * alpha * (1.0F - alpha) / pass.tau;
    }
  }
}

void take_decisions(const DecisionPass& pass, int layer, ops::Matrix<float> noisy,
                    ops::Matrix<float> bias, ops::Matrix<const float> logits) {
  if (pass.mode == DecisionPass::Mode::sampled) {
    Random random(pass.noise, static_cast<std::uint64_t>(layer));
    ops::sample_decisions(random, pass.tau, noisy, bias, logits);
    return;
  }
  assert(pass.mode == DecisionPass::Mode::hard);
  for (std::size_t t = 0; t < logits.rows; ++t) {
    for (std::size_t d = 0; d < logits.cols; ++d) {
      const float logit = logits.row(t)[d];
      noisy.row(t)[d] = logit;
      bias.row(t)[d] = logit > 0.0F ? kHiddenBias : 0.0F;
    }
  }
}

void take_pooled(int pooled, std::span<const std::int32_t> first_key, ops::Matrix<float> noisy,
                 ops::Matrix<float> bias) {
  for (std::size_t t = 0; t < noisy.rows; ++t) {
    const bool merges = (static_cast<std::int32_t>(t) - first_key[t]) % pooled != 0;
    std::ranges::fill(noisy.row(t), merges ? kCertain : -kCertain);
    std::ranges::fill(bias.row(t), merges ? kHiddenBias : 0.0F);
  }
}

void take_decisions_backward(const DecisionPass& pass, const DecisionLoss& loss,
                             ops::Matrix<float> dlogits, ops::Matrix<const float> dbias,
                             ops::Matrix<const float> noisy, ops::Matrix<const float> logits) {
  assert(pass.mode == DecisionPass::Mode::sampled);
  ops::sample_decisions_backward(pass.tau, dlogits, noisy, dbias, loss.count);
  for (std::size_t t = 0; t < logits.rows; ++t) {
    for (std::size_t d = 0; d < logits.cols; ++d) {
      const float logit = logits.row(t)[d];
      const float excess = std::max(std::abs(logit) - loss.excess_limit, 0.0F);
      dlogits.row(t)[d] += 2.0F * loss.excess * std::copysign(excess, logit);
      if (!loss.spread.empty()) {
        const float soft = 1.0F / (1.0F + std::exp(-noisy.row(t)[d]));
        dlogits.row(t)[d] += loss.spread[d] * soft * (1.0F - soft) / pass.tau;
      }
    }
  }
}

void align_to_keys(int shift, std::span<const std::int32_t> first_key, ops::Matrix<float> keys,
                   ops::Matrix<const float> decided) {
  const auto by = static_cast<std::size_t>(shift);
  for (std::size_t key = 0; key < keys.rows; ++key) {
    const std::size_t token = key + by;
    const bool is_decided = token < keys.rows && concerns(first_key, token, by);
    for (std::size_t head = 0; head < keys.cols; ++head) {
      keys.row(key)[head] =
          is_decided ? decided.row(token)[std::min(head, decided.cols - 1)] : 0.0F;
    }
  }
}

void align_to_keys_backward(int shift, std::span<const std::int32_t> first_key,
                            ops::Matrix<float> decided, ops::Matrix<const float> keys) {
  const auto by = static_cast<std::size_t>(shift);
  for (std::size_t token = 0; token < decided.rows; ++token) {
    const auto row = decided.row(token);
    std::ranges::fill(row, 0.0F);
    if (concerns(first_key, token, by)) {
      for (std::size_t head = 0; head < keys.cols; ++head) {
        row[std::min(head, row.size() - 1)] += keys.row(token - by)[head];
      }
    }
  }
}

double excess_of(ops::Matrix<const float> logits, float limit) {
  double sum = 0.0;
  for (std::size_t t = 0; t < logits.rows; ++t) {
    for (const float logit : logits.row(t)) {
      const double excess = std::max(std::abs(logit) - limit, 0.0F);
      sum += excess * excess;
    }
  }
  return sum;
}

}  // namespace winnow::train
