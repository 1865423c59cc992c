#include "ops/loss.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>
#include <vector>

#include "ops/cpu/attention/attention_kernels.h"
#include "ops/cpu/rows.h"
#include "ops/cpu/soft_cap.h"

namespace winnow::ops {
namespace {

/// loss(), which replaces capped logits by their gradient, for logits that are not capped yet.
template <class Loss>
double loss_of_capped(std::span<float> logits, float cap, const Loss& loss) {
  thread_local std::vector<float> capped;
  cpu::soft_cap(logits, cap);
  capped.assign(logits.begin(), logits.end());
  const double result = loss();
  cpu::soft_cap_backward(logits, capped, cap);
  return result;
}

/// The sum of loss_of_row(m) over the rows whose weight is not 0, in row order for any number of
/// threads. The other rows of `gradient` become 0.
template <class LossOfRow>
double sum_of_losses(Matrix<float> gradient, std::span<const float> weights, float final_soft_cap,
                     const LossOfRow& loss_of_row) {
  assert(weights.size() == gradient.rows);
  std::vector<double> losses(gradient.rows);
  cpu::for_rows(gradient.rows, gradient.cols, [&](std::size_t m) {
    if (weights[m] == 0.0F) {
      std::ranges::fill(gradient.row(m), 0.0F);
    } else if (final_soft_cap > 0.0F) {
      losses[m] = double{weights[m]} *
                  loss_of_capped(gradient.row(m), final_soft_cap, [&] { return loss_of_row(m); });
    } else {
      losses[m] = double{weights[m]} * loss_of_row(m);
    }
  });
  return std::accumulate(losses.begin(), losses.end(), 0.0);
}

/// Turns logits into probabilities times `factor`; returns the logarithm of the softmax's
/// denominator (log-sum-exp).
double softmax(std::span<float> logits, float factor) {
  const float largest = cpu::max_of(logits);
  const float sum = cpu::exp_shifted(logits, largest);
  cpu::scale_by(logits, factor / sum);
  return double{largest} + std::log(double{sum});
}

/// sum_v weights[v] * (a[v] - b[v]).
double mean_difference(std::span<const float> weights, std::span<const float> a,
                       std::span<const float> b) {
  double sum = 0.0;
  for (std::size_t v = 0; v < weights.size(); ++v) {
    sum += double{weights[v] * (a[v] - b[v])};
  }
  return sum;
}

// d/dz_v = p_v - [v == target].
double cross_entropy_row(std::span<float> logits, std::size_t target, float weight) {
  const float logit = logits[target];
  const double normalizer = softmax(logits, weight);
  logits[target] -= weight;
  return normalizer - double{logit};
}

// KL(q || p) of teacher q and student p; d/dz_v = p_v - q_v.
double forward_row(std::span<float> student, std::span<const float> teacher, float weight) {
  thread_local std::vector<float> q;
  q.assign(teacher.begin(), teacher.end());
  const double teacher_normalizer = softmax(q, 1.0F);
  const double difference = mean_difference(q, teacher, student);
  const double student_normalizer = softmax(student, weight);
  for (std::size_t v = 0; v < student.size(); ++v) {
    student[v] -= weight * q[v];
  }
  return difference - teacher_normalizer + student_normalizer;
}

// KL(p || q); d/dz_v = p_v (log p_v - log q_v - KL); the normalizers cancel except in KL itself.
double reverse_row(std::span<float> student, std::span<const float> teacher, float weight) {
  thread_local std::vector<float> p;
  thread_local std::vector<float> q;
  p.assign(student.begin(), student.end());
  q.assign(teacher.begin(), teacher.end());
  const double student_normalizer = softmax(p, 1.0F);
  const double teacher_normalizer = softmax(q, 1.0F);
  const double difference = mean_difference(p, student, teacher);
  for (std::size_t v = 0; v < student.size(); ++v) {
    student[v] = weight * p[v] * (student[v] - teacher[v] - static_cast<float>(difference));
  }
  return difference - student_normalizer + teacher_normalizer;
}

}  // namespace

double cross_entropy(Matrix<float> logits, std::span<const std::int32_t> targets,
                     std::span<const float> weights, float final_soft_cap) {
  assert(targets.size() == logits.rows);
  return sum_of_losses(logits, weights, final_soft_cap, [&](std::size_t m) {
    const auto target = static_cast<std::size_t>(targets[m]);
    assert(target < logits.cols);
    return cross_entropy_row(logits.row(m), target, weights[m]);
  });
}

double distillation(Divergence divergence, Matrix<float> student, Matrix<const float> teacher,
                    std::span<const float> weights, float final_soft_cap) {
  assert(teacher.rows == student.rows && teacher.cols == student.cols);
  return sum_of_losses(student, weights, final_soft_cap, [&](std::size_t m) {
    return divergence == Divergence::forward
               ? forward_row(student.row(m), teacher.row(m), weights[m])
               : reverse_row(student.row(m), teacher.row(m), weights[m]);
  });
}

}  // namespace winnow::ops
