// Tokens sorted by the experts that they use, shared by the forward and the backward pass.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/threads.h"
#include "ops/context.h"
#include "ops/router.h"

namespace winnow::ops::cpu {

/// Pairs of a token and one of its experts, ordered by expert, then by token.
struct ExpertGroups {
  std::vector<std::size_t> begins;  // [experts + 1]: the pairs of each expert
  std::vector<std::size_t> pairs;   // [T * active]: token * active + rank of the expert
  std::size_t active = 1;

  [[nodiscard]] std::size_t token(std::size_t i) const { return pairs[i] / active; }
};

inline ExpertGroups group_by_expert(const Router& router, Matrix<const std::int32_t> experts) {
  ExpertGroups groups;
  groups.active = experts.cols;
  groups.begins.assign(static_cast<std::size_t>(router.count) + 1, 0);
  groups.pairs.resize(experts.rows * experts.cols);
  const std::size_t count = groups.pairs.size();
  for (std::size_t i = 0; i < count; ++i) {
    ++groups.begins[static_cast<std::size_t>(experts.data[i]) + 1];
  }
  for (std::size_t e = 1; e < groups.begins.size(); ++e) {
    groups.begins[e] += groups.begins[e - 1];
  }
  std::vector<std::size_t> next(groups.begins.begin(), groups.begins.end() - 1);
  for (std::size_t i = 0; i < count; ++i) {
    groups.pairs[next[static_cast<std::size_t>(experts.data[i])]++] = i;
  }
  return groups;
}

/// body(expert, begin, end) for each expert that some token uses, with the range of its pairs.
template <class Body>
void for_each_group(const ExpertGroups& groups, const Body& body) {
  for (std::size_t e = 0; e + 1 < groups.begins.size(); ++e) {
    if (groups.begins[e] < groups.begins[e + 1]) {
      body(e, groups.begins[e], groups.begins[e + 1]);
    }
  }
}

inline Matrix<float> take_matrix(Context& context, std::size_t rows, std::size_t cols) {
  return {context.workspace->take<float>(rows * cols).data(), rows, cols};
}

inline Routes take_routes(Context& context, const Router& router, std::size_t tokens) {
  const auto active = static_cast<std::size_t>(router.active);
  return {{context.workspace->take<std::int32_t>(tokens * active).data(), tokens, active},
          take_matrix(context, tokens, active)};
}

/// The rows of x that belong to pairs [begin, end), each times its weight if there are `weights`.
inline Matrix<float> gather(Context& context, const ExpertGroups& groups, std::size_t begin,
                            std::size_t end, Matrix<const float> x, const float* weights) {
  const Matrix<float> rows = take_matrix(context, end - begin, x.cols);
  parallel_ranges(rows.rows, [&](std::size_t first, std::size_t last, int) {
    for (std::size_t i = first; i < last; ++i) {
      const float factor = weights != nullptr ? weights[groups.pairs[begin + i]] : 1.0F;
      std::ranges::transform(x.row(groups.token(begin + i)), rows.row(i).begin(),
                             [factor](float value) { return factor * value; });
    }
  });
  return rows;
}

/// Adds rows of the pairs from `begin` on to the rows of their tokens, each times its weight if
/// there are `weights`. No token occurs twice.
inline void scatter_add(const ExpertGroups& groups, std::size_t begin, Matrix<float> out,
                        Matrix<const float> rows, const float* weights) {
  parallel_ranges(rows.rows, [&](std::size_t first, std::size_t last, int) {
    for (std::size_t i = first; i < last; ++i) {
      const float factor = weights != nullptr ? weights[groups.pairs[begin + i]] : 1.0F;
      const auto target = out.row(groups.token(begin + i));
      std::ranges::transform(target, rows.row(i), target.begin(),
                             [factor](float sum, float value) { return sum + factor * value; });
    }
  });
}

}  // namespace winnow::ops::cpu
