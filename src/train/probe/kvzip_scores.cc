#include "train/probe/kvzip_scores.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/threads.h"
#include "ops/linear.h"
#include "ops/log_sum_exp.h"

namespace winnow::train {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();
constexpr double kSmallestNorm = 1e-20;  // the log of a value that contributes nothing is finite

// Columns of one head, contiguous.
ops::Matrix<float> copy_head(ops::Workspace& workspace, ops::Matrix<const float> heads,
                             std::size_t first, std::size_t width, float scale = 1.0F) {
  const ops::Matrix<float> out(workspace.take<float>(heads.rows * width).data(), heads.rows, width);
  for (std::size_t t = 0; t < heads.rows; ++t) {
    std::ranges::transform(heads.row(t).subspan(first, width), out.row(t).begin(),
                           [scale](float x) { return x * scale; });
  }
  return out;
}

void cap(std::span<float> scores, float most) {
  if (most > 0.0F) {
    std::ranges::transform(scores, scores.begin(),
                           [most](float x) { return most * std::tanh(x / most); });
  }
}

// log(exp(a) + exp(b))
double log_add(double a, double b) {
  return std::max(a, b) + std::log1p(std::exp(-std::abs(a - b)));
}

double log_norm(std::span<const float> x) {
  const double squares = std::inner_product(x.begin(), x.end(), x.begin(), 0.0);
  return std::log(std::max(std::sqrt(squares), kSmallestNorm));
}

std::vector<float> gram_of_columns(const ops::Weight& matrix, std::size_t first,
                                   std::size_t count) {
  std::vector<float> gram(count * count);
  std::vector<float> row(static_cast<std::size_t>(matrix.cols));
  for (std::int64_t r = 0; r < matrix.rows; ++r) {
    ops::dequantize_row(matrix, r, row.data());
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t j = 0; j < count; ++j) {
        gram[i * count + j] += row[first + i] * row[first + j];
      }
    }
  }
  return gram;
}

}  // namespace

KvzipScorer::KvzipScorer(const model::AttentionSpec& attention, const model::LayerWeights& weights)
    : attention_(attention), weights_(weights), grams_(static_cast<std::size_t>(attention.heads)) {
  const auto width = static_cast<std::size_t>(attention.value_dim);
  parallel_each(grams_.size(), [&](std::size_t head, int) {
    grams_[head] = gram_of_columns(weights.output, head * width, width);
  });
}

float KvzipScorer::log_value_norm(std::size_t head, std::span<const float> value) const {
  const auto width = static_cast<std::size_t>(attention_.value_dim);
  double square = 0.0;
  for (std::size_t i = 0; i < width; ++i) {
    const auto row = std::span(grams_[head]).subspan(i * width, width);
    square += double{value[i]} * std::inner_product(row.begin(), row.end(), value.begin(), 0.0F);
  }
  const double norm = std::sqrt(std::max(square, 0.0));
  return static_cast<float>(std::log(std::max(norm, kSmallestNorm)));
}

// By entry of the text: the largest log(a_gj(i) / |x_j|) of query head g.
std::vector<float> KvzipScorer::log_weights(ops::Context& context,
                                            const model::AttentionInputs& inputs,
                                            const Repetition& repetition, int head) const {
  ops::Workspace& workspace = *context.workspace;
  const ops::Workspace::Scope scope(workspace);
  const std::size_t width = inputs.queries.cols / static_cast<std::size_t>(attention_.heads);
  const std::size_t end = repetition.again + repetition.length;
  const auto own = static_cast<std::size_t>(head);
  const auto kv_head = static_cast<std::size_t>(head / attention_.group());
  const auto queries = copy_head(workspace, inputs.queries.slice(repetition.again, end),
                                 own * width, width, attention_.scale);
  const auto keys = copy_head(workspace, inputs.keys.slice(0, end), kv_head * width, width);
  const ops::Matrix<float> scores(workspace.take<float>(queries.rows * end).data(), queries.rows,
                                  end);
  ops::linear(context, scores, queries,
              {.format = ops::WeightFormat::f32,
               .rows = static_cast<std::int64_t>(end),
               .cols = static_cast<std::int64_t>(width),
               .data = keys.data});
  std::vector<float> divisors(queries.rows);  // logs of the softmax's denominator and |x_j|
  parallel_ranges(queries.rows, [&](std::size_t first, std::size_t last, int) {
    for (std::size_t j = first; j < last; ++j) {
      const std::size_t position = repetition.again + j;
      const auto seen = scores.row(j).first(position + 1);
      cap(seen, attention_.soft_cap);
      double sum = ops::log_sum_exp(seen);
      if (!weights_.sinks.empty()) {
        sum = log_add(sum, weights_.sinks[own]);
      }
      divisors[j] = static_cast<float>(sum + log_norm(inputs.hidden.row(position)));
    }
  });
  std::vector<float> most(repetition.length, kLowest);
  parallel_ranges(most.size(), [&](std::size_t first, std::size_t last, int) {
    for (std::size_t j = 0; j < scores.rows; ++j) {
      const float* const row = scores.row(j).data() + repetition.text;
      for (std::size_t i = first; i < last; ++i) {
        most[i] = std::max(most[i], row[i] - divisors[j]);
      }
    }
  });
  return most;
}

void KvzipScorer::score(ops::Context& context, const model::AttentionInputs& inputs,
                        const Repetition& repetition, ops::Matrix<float> out) const {
  const std::size_t width = inputs.values.cols / static_cast<std::size_t>(attention_.kv_heads);
  for (int head = 0; head < attention_.heads; ++head) {
    const std::vector<float> weights = log_weights(context, inputs, repetition, head);
    const auto kv_head = static_cast<std::size_t>(head / attention_.group());
    const bool first = head % attention_.group() == 0;
    parallel_ranges(weights.size(), [&](std::size_t begin, std::size_t end, int) {
      for (std::size_t i = begin; i < end; ++i) {
        const auto values = inputs.values.row(repetition.text + i);
        const float score = weights[i] + log_value_norm(static_cast<std::size_t>(head),
                                                        values.subspan(kv_head * width, width));
        float& most = out.row(i)[kv_head];
        most = first ? score : std::max(most, score);
      }
    });
  }
}

}  // namespace winnow::train
