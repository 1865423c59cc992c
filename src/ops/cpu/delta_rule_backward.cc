#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <vector>

#include "base/threads.h"
#include "ops/cpu/delta_columns.h"
#include "ops/delta_rule.h"

namespace winnow::ops {
namespace {

using cpu::kDeltaColumns;

constexpr std::size_t kSpan = 64;  // tokens whose states are held in memory at a time

using Row = std::array<float, kDeltaColumns>;
using State = std::vector<Row>;  // [key_dim]

float dot(const Row& a, const Row& b) {
  float sum = 0.0F;
  for (std::size_t c = 0; c < kDeltaColumns; ++c) {
    sum += a[c] * b[c];
  }
  return sum;
}

void add(Row& to, float factor, const Row& x) {
  for (std::size_t c = 0; c < kDeltaColumns; ++c) {
    to[c] += factor * x[c];
  }
}

// States are recomputed, a span of tokens at a time, from the states that the first pass stores
// between spans.
class BlockBackward {
 public:
  BlockBackward(const DeltaRuleShape& shape, const DeltaRuleChunk& chunk, Matrix<const float> dout,
                const DeltaRuleGradients& gradients, std::size_t head, std::size_t first)
      : chunk_(chunk),
        dout_(dout),
        g_(gradients),
        columns_(shape, head, first),
        corrects_(shape.corrects) {}

  void run() {
    const std::size_t tokens = chunk_.queries.rows;
    std::vector<State> starts{State(columns_.rows, Row{})};
    for (std::size_t t = 0; t + kSpan < tokens; t += kSpan) {
      starts.push_back(starts.back());
      for (std::size_t i = t; i < t + kSpan; ++i) {
        advance(i, starts.back());
      }
    }
    State gradient(columns_.rows, Row{});
    for (std::size_t span = starts.size(); span-- > 0;) {
      const std::size_t first = span * kSpan;
      const std::size_t last = std::min(first + kSpan, tokens);
      std::vector<State> states{starts[span]};  // before each token, and after the last one
      for (std::size_t t = first; t < last; ++t) {
        states.push_back(states.back());
        advance(t, states.back());
      }
      for (std::size_t t = last; t-- > first;) {
        retreat(t, states[t - first], states[t - first + 1], gradient);
      }
    }
  }

 private:
  [[nodiscard]] const float* key(std::size_t t) const {
    return chunk_.keys.row(t).data() + columns_.key_column;
  }
  [[nodiscard]] Row part_of(Matrix<const float> x, std::size_t t) const {
    Row row{};
    std::copy_n(x.row(t).data() + columns_.value_column, columns_.count, row.begin());
    return row;
  }

  // The value added to the state: value - decay S^T key (S before the token), or the value itself.
  [[nodiscard]] Row error(std::size_t t, const State& before) const {
    Row error = part_of(chunk_.values, t);
    if (!corrects_) {
      return error;
    }
    const float decay = chunk_.decays.row(t)[columns_.head];
    for (std::size_t i = 0; i < columns_.rows; ++i) {
      add(error, -decay * key(t)[i], before[i]);
    }
    return error;
  }

  void advance(std::size_t t, State& state) const {
    const Row missed = error(t, state);
    const float decay = chunk_.decays.row(t)[columns_.head];
    const float rate = chunk_.rates.row(t)[columns_.head];
    for (std::size_t i = 0; i < columns_.rows; ++i) {
      for (float& x : state[i]) {
        x *= decay;
      }
      add(state[i], rate * key(t)[i], missed);
    }
  }

  // `gradient`: in, the gradient of the state after the token; out, of the state before it.
  void retreat(std::size_t t, const State& before, const State& behind, State& gradient) {
    const float* query = chunk_.queries.row(t).data() + columns_.key_column;
    float* dquery = g_.queries.row(t).data() + columns_.key_column;
    float* dkey = g_.keys.row(t).data() + columns_.key_column;
    const float decay = chunk_.decays.row(t)[columns_.head];
    const float rate = chunk_.rates.row(t)[columns_.head];
    const Row dout = part_of(dout_, t);
    const Row missed = error(t, before);
    Row dupdate{};
    for (std::size_t i = 0; i < columns_.rows; ++i) {
      add(gradient[i], query[i], dout);
      dquery[i] += dot(behind[i], dout);
      dkey[i] += rate * dot(gradient[i], missed);
      add(dupdate, key(t)[i], gradient[i]);
    }
    g_.rates.row(t)[columns_.head] += dot(missed, dupdate);
    float* dvalue = g_.values.row(t).data() + columns_.value_column;
    for (std::size_t c = 0; c < columns_.count; ++c) {
      dvalue[c] = rate * dupdate[c];
    }
    float ddecay = 0.0F;
    for (std::size_t i = 0; i < columns_.rows; ++i) {
      if (corrects_) {
        dkey[i] -= decay * rate * dot(before[i], dupdate);
        add(gradient[i], -rate * key(t)[i], dupdate);
      }
      ddecay += dot(before[i], gradient[i]);
      for (float& x : gradient[i]) {
        x *= decay;
      }
    }
    g_.decays.row(t)[columns_.head] += ddecay;
  }

  const DeltaRuleChunk& chunk_;
  Matrix<const float> dout_;
  const DeltaRuleGradients& g_;
  cpu::DeltaColumns columns_;
  bool corrects_;
};

}  // namespace

void delta_rule_backward(const DeltaRuleShape& shape, std::span<const DeltaRuleChunk> chunks,
                         std::span<const Matrix<const float>> dout,
                         std::span<const DeltaRuleGradients> gradients) {
  assert(chunks.size() == dout.size() && chunks.size() == gradients.size());
  const auto key_heads = static_cast<std::size_t>(shape.key_heads);
  const auto group = static_cast<std::size_t>(shape.value_heads / shape.key_heads);
  // Everything that adds to the same gradient is one task.
  parallel_each(chunks.size() * key_heads, [&](std::size_t i, int) {
    const std::size_t c = i / key_heads;
    const std::size_t first = i % key_heads * group;
    for (std::size_t head = first; head < first + group; ++head) {
      for (std::size_t at = 0; at < static_cast<std::size_t>(shape.value_dim);
           at += kDeltaColumns) {
        BlockBackward(shape, chunks[c], dout[c], gradients[c], head, at).run();
      }
    }
  });
}

void delta_gates_backward(Matrix<float> ddecays, Matrix<float> drates, std::span<float> dlog_decay,
                          std::span<float> dbias, Matrix<const float> logits,
                          Matrix<const float> decays, Matrix<const float> rates,
                          std::span<const float> log_decay, std::span<const float> bias) {
  for (std::size_t t = 0; t < logits.rows; ++t) {
    for (std::size_t h = 0; h < logits.cols; ++h) {
      const float x = logits.row(t)[h] + bias[h];
      const float decay = decays.row(t)[h];
      float& gradient = ddecays.row(t)[h];
      // decay = exp(-softplus(x) exp(log_decay)), so log(decay) is d log(decay) / d log_decay.
      const float along = decay > 0.0F ? gradient * decay * std::log(decay) : 0.0F;
      gradient *= -decay * std::exp(log_decay[h]) / (1.0F + std::exp(-x));
      if (!dlog_decay.empty()) {
        dlog_decay[h] += along;
      }
      if (!dbias.empty()) {
        dbias[h] += gradient;
      }
      const float rate = rates.row(t)[h];
      drates.row(t)[h] *= rate * (1.0F - rate);
    }
  }
}

void state_space_gates_backward(Matrix<float> ddecays, Matrix<const float> drates,
                                std::span<float> dlog_decay, std::span<float> dbias,
                                Matrix<const float> logits, Matrix<const float> decays,
                                Matrix<const float> rates, std::span<const float> log_decay,
                                std::span<const float> bias, const RateLimits& limits) {
  for (std::size_t t = 0; t < logits.rows; ++t) {
    for (std::size_t h = 0; h < logits.cols; ++h) {
      const float x = logits.row(t)[h] + bias[h];
      const float rate = rates.row(t)[h];
      float& gradient = ddecays.row(t)[h];
      const float by_decay = gradient * decays.row(t)[h] * -std::exp(log_decay[h]);
      const bool moves = rate > limits.lowest && rate < limits.highest;
      gradient = moves ? (drates.row(t)[h] + by_decay) / (1.0F + std::exp(-x)) : 0.0F;
      if (!dlog_decay.empty()) {
        dlog_decay[h] += by_decay * rate;
      }
      if (!dbias.empty()) {
        dbias[h] += gradient;
      }
    }
  }
}

}  // namespace winnow::ops
