#include "model/mixer_parts.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "ops/norm.h"

namespace winnow::model {
namespace {

using ops::Matrix;

// Calls move(joined, part, count) for the pieces of a row: for each group a share of every part, by
// its place in the joined row and in the part.
template <class Move>
void for_each_piece(std::size_t groups, Matrix<float> joined, std::span<const Matrix<float>> parts,
                    const Move& move) {
  for (std::size_t t = 0; t < joined.rows; ++t) {
    float* next = joined.row(t).data();
    for (std::size_t group = 0; group < groups; ++group) {
      for (const Matrix<float>& part : parts) {
        const std::size_t width = part.cols / groups;
        move(next, part.row(t).data() + group * width, width);
        next += width;
      }
    }
  }
}

template <class Move>
void for_each_recurrent_piece(const ops::DeltaRuleShape& heads, Matrix<float> all,
                              Matrix<float> small, const RecurrentProjections& parts,
                              const Move& move) {
  const int keys = heads.key_width();
  const auto groups = static_cast<std::size_t>(heads.key_heads);
  const std::array big{columns(parts.input, 0, keys), columns(parts.input, keys, keys),
                       columns(parts.input, 2 * keys, heads.value_width()), parts.gates};
  for_each_piece(groups, all, big, move);
  const std::array gates{parts.rates, parts.decays};
  for_each_piece(groups, small, gates, move);
}

void split(const float* joined, float* part, std::size_t count) {
  std::copy_n(joined, count, part);
}

void join(float* joined, const float* part, std::size_t count) {
  std::copy_n(part, count, joined);
}

}  // namespace

void norm_groups(int groups, Matrix<float> x, std::span<const float> weight, float eps) {
  const std::size_t size = x.cols / static_cast<std::size_t>(groups);
  for (std::size_t at = 0; at < x.cols; at += size) {
    const auto group = columns(x, static_cast<int>(at), static_cast<int>(size));
    ops::rms_norm(group, group, weight.subspan(at, size), eps);
  }
}

void add_skip(const ops::DeltaRuleShape& heads, std::span<const float> skip,
              Matrix<const float> values, Matrix<float> out) {
  const auto dim = static_cast<std::size_t>(heads.value_dim);
  for (std::size_t t = 0; t < out.rows; ++t) {
    for (std::size_t i = 0; i < out.cols; ++i) {
      out.row(t)[i] += skip[i / dim] * values.row(t)[i];
    }
  }
}

void split_output_gates(int head_dim, Matrix<const float> projected, Matrix<float> queries,
                        Matrix<float> gates) {
  for (std::size_t t = 0; t < projected.rows; ++t) {
    const float* from = projected.row(t).data();
    for (std::size_t at = 0; at < queries.cols; at += static_cast<std::size_t>(head_dim)) {
      std::copy_n(from + 2 * at, head_dim, queries.row(t).data() + at);
      std::copy_n(from + 2 * at + head_dim, head_dim, gates.row(t).data() + at);
    }
  }
}

void join_output_gates(int head_dim, Matrix<float> projected, Matrix<const float> queries,
                       Matrix<const float> gates) {
  for (std::size_t t = 0; t < projected.rows; ++t) {
    float* to = projected.row(t).data();
    for (std::size_t at = 0; at < queries.cols; at += static_cast<std::size_t>(head_dim)) {
      std::copy_n(queries.row(t).data() + at, head_dim, to + 2 * at);
      std::copy_n(gates.row(t).data() + at, head_dim, to + 2 * at + head_dim);
    }
  }
}

void widen_heads(Matrix<const float> x, int head_dim, Matrix<float> wide, int wide_dim) {
  const auto from = static_cast<std::size_t>(head_dim);
  const auto to = static_cast<std::size_t>(wide_dim);
  for (std::size_t t = 0; t < x.rows; ++t) {
    std::ranges::fill(wide.row(t), 0.0F);
    for (std::size_t h = 0; h < x.cols / from; ++h) {
      std::copy_n(x.row(t).data() + h * from, from, wide.row(t).data() + h * to);
    }
  }
}

void narrow_heads(Matrix<const float> wide, int wide_dim, Matrix<float> x, int head_dim) {
  const auto from = static_cast<std::size_t>(wide_dim);
  const auto to = static_cast<std::size_t>(head_dim);
  for (std::size_t t = 0; t < x.rows; ++t) {
    for (std::size_t h = 0; h < x.cols / to; ++h) {
      std::copy_n(wide.row(t).data() + h * from, to, x.row(t).data() + h * to);
    }
  }
}

void split_recurrent(const ops::DeltaRuleShape& heads, Matrix<float> all, Matrix<float> small,
                     const RecurrentProjections& parts) {
  for_each_recurrent_piece(heads, all, small, parts, split);
}

void join_recurrent(const ops::DeltaRuleShape& heads, Matrix<float> all, Matrix<float> small,
                    const RecurrentProjections& parts) {
  for_each_recurrent_piece(heads, all, small, parts, join);
}

LengthNorm::LengthNorm(int head_dim, float length)
    : weight(static_cast<std::size_t>(head_dim), length / std::sqrt(static_cast<float>(head_dim))),
      eps(1e-6F / static_cast<float>(head_dim)) {}

LengthNorm query_length(const ops::DeltaRuleShape& heads) {
  return {heads.key_dim, 1.0F / std::sqrt(static_cast<float>(heads.key_dim))};
}

LengthNorm key_length(const ops::DeltaRuleShape& heads) {
  return {heads.key_dim, 1.0F};
}

}  // namespace winnow::model
