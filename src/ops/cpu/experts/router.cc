#include "ops/router.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "base/threads.h"
#include "ops/cpu/sigmoid.h"

namespace winnow::ops {
namespace {

void divide(std::span<float> values, float by) {
  for (float& value : values) {
    value /= by;
  }
}

// The indices of the `chosen.size()` largest values; on a tie, the lower index.
void choose(std::span<std::int32_t> chosen, std::span<const float> values,
            std::vector<std::int32_t>& order) {
  order.resize(values.size());
  std::iota(order.begin(), order.end(), 0);
  const auto better = [&](std::int32_t a, std::int32_t b) {
    const float x = values[static_cast<std::size_t>(a)];
    const float y = values[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  };
  const auto last = order.begin() + static_cast<std::ptrdiff_t>(chosen.size());
  std::partial_sort(order.begin(), last, order.end(), better);
  std::copy(order.begin(), last, chosen.begin());
}

// The scores that decide a choice with a bias: the scores of all experts plus the bias.
std::vector<float> biased_scores(const Router& router, std::span<const float> logits) {
  std::vector<float> scores(logits.begin(), logits.end());
  if (router.score == RouterScore::sigmoid) {
    std::ranges::transform(scores, scores.begin(), sigmoid);
  } else {
    const float largest = *std::ranges::max_element(logits);
    std::ranges::transform(scores, scores.begin(), [&](float x) { return std::exp(x - largest); });
    divide(scores, std::accumulate(scores.begin(), scores.end(), 0.0F));
  }
  for (std::size_t e = 0; e < scores.size() && router.choice_bias != nullptr; ++e) {
    scores[e] += router.choice_bias[e];
  }
  return scores;
}

// sparse_mixer: expert e's probability in the softmax that weighs the k-th of the chosen ones. Zero
// for experts that this softmax leaves out.
float mixed_share(const Router& router, std::span<const std::int32_t> chosen, std::size_t k,
                  std::span<const float> logits, std::size_t e) {
  const auto before = chosen.first(k);
  const float best = logits[static_cast<std::size_t>(chosen[k])];
  const bool taken = std::ranges::find(before, static_cast<std::int32_t>(e)) != before.end();
  return taken || !router.is_near(logits[e], best) ? 0.0F : std::exp(logits[e] - best);
}

float mixed_sum(const Router& router, std::span<const std::int32_t> chosen, std::size_t k,
                std::span<const float> logits) {
  float sum = 0.0F;
  for (std::size_t e = 0; e < logits.size(); ++e) {
    sum += mixed_share(router, chosen, k, logits, e);
  }
  return sum;
}

// Excludes all experts outside the best groups from the choice.
void keep_best_groups(const Router& router, std::span<float> scores,
                      std::vector<std::int32_t>& order) {
  const std::size_t size = scores.size() / static_cast<std::size_t>(router.groups);
  std::vector<float> best(static_cast<std::size_t>(router.groups));
  std::vector<std::int32_t> first(std::min(static_cast<std::size_t>(router.best_of_group), size));
  for (std::size_t g = 0; g < best.size(); ++g) {
    const auto group = scores.subspan(g * size, size);
    choose(first, group, order);
    for (const std::int32_t expert : first) {
      best[g] += group[static_cast<std::size_t>(expert)];
    }
  }
  std::vector<std::int32_t> kept(static_cast<std::size_t>(router.active_groups));
  choose(kept, best, order);
  for (std::size_t g = 0; g < best.size(); ++g) {
    if (std::ranges::find(kept, static_cast<std::int32_t>(g)) == kept.end()) {
      std::ranges::fill(scores.subspan(g * size, size), -std::numeric_limits<float>::infinity());
    }
  }
}

void choose_experts(const Router& router, std::span<std::int32_t> chosen,
                    std::span<const float> logits, std::vector<std::int32_t>& order) {
  if (router.goes_by_logits() || router.score == RouterScore::sparse_mixer) {
    return choose(chosen, logits, order);
  }
  std::vector<float> scores = biased_scores(router, logits);
  if (router.active_groups < router.groups) {
    keep_best_groups(router, scores, order);
  }
  choose(chosen, scores, order);
}

void weigh(const Router& router, std::span<float> weights, std::span<const std::int32_t> chosen,
           std::span<const float> logits) {
  if (router.score == RouterScore::sparse_mixer) {
    for (std::size_t k = 0; k < chosen.size(); ++k) {
      weights[k] = 1.0F / mixed_sum(router, chosen, k, logits);
    }
    return;
  }
  // With a bias, the expert with the largest logit may not be chosen.
  const float largest = router.choice_bias == nullptr
                            ? logits[static_cast<std::size_t>(chosen.front())]
                            : *std::ranges::max_element(logits);
  std::ranges::transform(chosen, weights.begin(), [&](std::int32_t expert) {
    const float logit = logits[static_cast<std::size_t>(expert)];
    return router.score == RouterScore::sigmoid ? sigmoid(logit) : std::exp(logit - largest);
  });
  const auto sum_of_chosen = [&] { return std::accumulate(weights.begin(), weights.end(), 0.0F); };
  if (router.normalized || router.score == RouterScore::softmax_of_chosen) {
    divide(weights, sum_of_chosen());
  } else if (router.score == RouterScore::softmax) {
    divide(weights, std::accumulate(logits.begin(), logits.end(), 0.0F, [&](float sum, float x) {
             return sum + std::exp(x - largest);
           }));
  }
  if (router.scale != 1.0F) {
    divide(weights, 1.0F / router.scale);
  }
}

void scale_experts(const Router& router, std::span<float> weights,
                   std::span<const std::int32_t> chosen) {
  for (std::size_t k = 0; k < weights.size() && router.expert_scale != nullptr; ++k) {
    weights[k] *= router.expert_scale[chosen[k]];
  }
}

void mixed_backward_row(const Router& router, std::span<float> dlogits,
                        std::span<const std::int32_t> chosen, std::span<const float> weights,
                        std::span<const float> weighted, std::span<const float> logits) {
  std::ranges::fill(dlogits, 0.0F);
  for (std::size_t k = 0; k < chosen.size(); ++k) {
    dlogits[static_cast<std::size_t>(chosen[k])] += weighted[k];
    for (std::size_t e = 0; e < logits.size(); ++e) {
      dlogits[e] -= mixed_share(router, chosen, k, logits, e) * weights[k] * weighted[k];
    }
  }
}

// `weights` excludes expert_scale; `weighted` includes it.
void backward_row(const Router& router, std::span<float> dlogits,
                  std::span<const std::int32_t> chosen, std::span<const float> weights,
                  std::span<const float> weighted, std::span<const float> logits) {
  if (router.score == RouterScore::sparse_mixer) {
    return mixed_backward_row(router, dlogits, chosen, weights, weighted, logits);
  }
  std::ranges::fill(dlogits, 0.0F);
  const float sum = std::accumulate(weighted.begin(), weighted.end(), 0.0F);
  const bool of_all = router.score == RouterScore::softmax && !router.normalized;
  if (of_all) {  // the logits of the other experts also contribute to the denominator
    const float first = logits[static_cast<std::size_t>(chosen.front())];
    for (std::size_t e = 0; e < logits.size(); ++e) {
      dlogits[e] = -weights.front() / router.scale * std::exp(logits[e] - first) * sum;
    }
  }
  const bool divides = router.normalized || router.score == RouterScore::softmax_of_chosen;
  for (std::size_t k = 0; k < chosen.size(); ++k) {
    const auto expert = static_cast<std::size_t>(chosen[k]);
    const float gradient = weighted[k] - (divides ? weights[k] / router.scale * sum : 0.0F);
    const float slope =
        router.score == RouterScore::sigmoid ? 1.0F - sigmoid(logits[expert]) : 1.0F;
    dlogits[expert] += gradient * slope;
  }
}

}  // namespace

void route(const Router& router, const Routes& routes, Matrix<const float> logits) {
  assert(logits.cols == static_cast<std::size_t>(router.count));
  assert(routes.experts.cols == static_cast<std::size_t>(router.active));
  parallel_ranges(logits.rows, [&](std::size_t begin, std::size_t end, int) {
    std::vector<std::int32_t> order;
    for (std::size_t t = begin; t < end; ++t) {
      choose_experts(router, routes.experts.row(t), logits.row(t), order);
      weigh(router, routes.weights.row(t), routes.experts.row(t), logits.row(t));
      scale_experts(router, routes.weights.row(t), routes.experts.row(t));
    }
  });
}

void route_backward(const Router& router, Matrix<float> dlogits, const Routes& routes,
                    Matrix<const float> weighted_gradients, Matrix<const float> logits) {
  parallel_ranges(logits.rows, [&](std::size_t begin, std::size_t end, int) {
    std::vector<float> weights(routes.experts.cols);
    for (std::size_t t = begin; t < end; ++t) {
      weigh(router, weights, routes.experts.row(t), logits.row(t));
      backward_row(router, dlogits.row(t), routes.experts.row(t), weights,
                   weighted_gradients.row(t), logits.row(t));
    }
  });
}

}  // namespace winnow::ops
