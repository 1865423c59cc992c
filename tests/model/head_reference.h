// A plain reference for heads of EAGLE-3, in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "model/head_files.h"

namespace winnow::testing {

using HeadVector = std::vector<double>;
inline constexpr double kHeadEps = 1e-5;

inline HeadVector times(const std::vector<float>& matrix, const HeadVector& x) {
  HeadVector out(matrix.size() / x.size());
  for (std::size_t row = 0; row < out.size(); ++row) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      out[row] += matrix[row * x.size() + i] * x[i];
    }
  }
  return out;
}

inline HeadVector normed(const HeadVector& x, const std::vector<float>& weight) {
  const double squares = std::inner_product(x.begin(), x.end(), x.begin(), 0.0);
  HeadVector out(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    out[i] = x[i] / std::sqrt(squares / static_cast<double>(x.size()) + kHeadEps) * weight[i];
  }
  return out;
}

inline HeadVector joined(HeadVector a, const HeadVector& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline void add(HeadVector& to, const HeadVector& x) {
  std::transform(to.begin(), to.end(), x.begin(), to.begin(), std::plus<>());
}

/// A head, written as its paper describes it: one row after the other, in double.
class HeadReference {
 public:
  HeadReference(const HeadFiles& head, std::string layer) : head_(head), layer_(std::move(layer)) {}

  bool norms_residual = false;

  [[nodiscard]] HeadVector fused(const HeadVector& states) const {
    return times(head_.at("fc.weight"), head_.tensors.contains("input_norm.weight")
                                            ? normed(states, head_.at("input_norm.weight"))
                                            : states);
  }

  /// The stream behind the layer, for the next token and what goes with it.
  HeadVector take(std::int32_t token, HeadVector stream) {
    const auto width = static_cast<std::size_t>(head_.sizes.hidden);
    const float* from =
        head_.at("embed_tokens.weight").data() + width * static_cast<std::size_t>(token);
    const HeadVector embedded = normed(HeadVector(from, from + width), weight("input_layernorm"));
    const HeadVector hidden = normed(stream, weight("hidden_norm"));
    if (norms_residual) {
      stream = hidden;
    }
    const HeadVector input = joined(embedded, hidden);
    const HeadVector query = rotated(times(weight("self_attn.q_proj"), input), "self_attn.q_norm");
    keys_.push_back(rotated(times(weight("self_attn.k_proj"), input), "self_attn.k_norm"));
    values_.push_back(times(weight("self_attn.v_proj"), input));
    add(stream, times(weight("self_attn.o_proj"), attended(query)));
    const HeadVector x = normed(stream, weight("post_attention_layernorm"));
    HeadVector gate = times(weight("mlp.gate_proj"), x);
    const HeadVector up = times(weight("mlp.up_proj"), x);
    for (std::size_t i = 0; i < gate.size(); ++i) {
      gate[i] = gate[i] / (1.0 + std::exp(-gate[i])) * up[i];
    }
    add(stream, times(weight("mlp.down_proj"), gate));
    return stream;
  }

  /// In the target's vocabulary.
  [[nodiscard]] HeadVector logits(const HeadVector& stream) const {
    const HeadVector drafted =
        times(head_.at("lm_head.weight"), normed(stream, head_.at("norm.weight")));
    HeadVector all(static_cast<std::size_t>(head_.sizes.vocab),
                   -std::numeric_limits<double>::infinity());
    for (std::size_t i = 0; i < drafted.size(); ++i) {
      const std::int64_t offset = head_.offsets.empty() ? 0 : head_.offsets[i];
      all[static_cast<std::size_t>(static_cast<std::int64_t>(i) + offset)] = drafted[i];
    }
    return all;
  }

 private:
  [[nodiscard]] const std::vector<float>& weight(const std::string& name) const {
    return head_.at(layer_ + name + ".weight");
  }
  [[nodiscard]] std::size_t head_dim() const {
    return static_cast<std::size_t>(head_.sizes.head_dim);
  }

  // After the norm of each head, if there is one, RoPE for the row that is taken now.
  [[nodiscard]] HeadVector rotated(HeadVector x, const std::string& norm) const {
    const auto position = static_cast<double>(values_.size());
    const std::size_t half = head_dim() / 2;
    for (std::size_t at = 0; at < x.size(); at += head_dim()) {
      if (head_.tensors.contains(layer_ + norm + ".weight")) {
        const HeadVector part =
            normed(HeadVector(x.begin() + at, x.begin() + at + head_dim()), weight(norm));
        std::copy(part.begin(), part.end(), x.begin() + at);
      }
      for (std::size_t i = 0; i < half; ++i) {
        const double angle =
            position * std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(half));
        const double a = x[at + i];
        const double b = x[at + i + half];
        x[at + i] = a * std::cos(angle) - b * std::sin(angle);
        x[at + i + half] = b * std::cos(angle) + a * std::sin(angle);
      }
    }
    return x;
  }

  [[nodiscard]] HeadVector attended(const HeadVector& query) const {
    const auto heads = static_cast<std::size_t>(head_.sizes.heads);
    const std::size_t group = heads / static_cast<std::size_t>(head_.sizes.kv_heads);
    HeadVector out(query.size());
    for (std::size_t h = 0; h < heads; ++h) {
      const std::size_t from = h / group * head_dim();
      HeadVector weights;
      for (const HeadVector& key : keys_) {
        const double score =
            std::inner_product(query.begin() + h * head_dim(), query.begin() + (h + 1) * head_dim(),
                               key.begin() + from, 0.0);
        weights.push_back(std::exp(score / std::sqrt(static_cast<double>(head_dim()))));
      }
      const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
      for (std::size_t t = 0; t < weights.size(); ++t) {
        for (std::size_t i = 0; i < head_dim(); ++i) {
          out[h * head_dim() + i] += weights[t] / all * values_[t][from + i];
        }
      }
    }
    return out;
  }

  const HeadFiles& head_;
  std::string layer_;  // the prefix of its tensors
  std::vector<HeadVector> keys_;
  std::vector<HeadVector> values_;
};

}  // namespace winnow::testing
