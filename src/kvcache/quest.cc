#include "kvcache/quest.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace winnow::kvcache {

void PageBounds::add(int index, int page_entries, std::span<const float> key) {
  const std::size_t dim = key.size();
  const std::size_t page = static_cast<std::size_t>(index / page_entries) * 2 * dim;
  if (index % page_entries == 0) {
    bounds_.insert(bounds_.end(), dim, std::numeric_limits<float>::infinity());
    bounds_.insert(bounds_.end(), dim, -std::numeric_limits<float>::infinity());
  }
  for (std::size_t d = 0; d < dim; ++d) {
    bounds_[page + d] = std::min(bounds_[page + d], key[d]);
    bounds_[page + dim + d] = std::max(bounds_[page + dim + d], key[d]);
  }
}

float PageBounds::upper_bound(int page, std::span<const float> query) const {
  const std::size_t dim = query.size();
  const float* low = &bounds_[static_cast<std::size_t>(page) * 2 * dim];
  const float* high = low + dim;
  float sum = 0.0F;
  for (std::size_t d = 0; d < dim; ++d) {
    sum += std::max(query[d] * low[d], query[d] * high[d]);
  }
  return sum;
}

std::vector<int> select_pages(const PageBounds& bounds, const PageChoice& choice,
                              std::span<const float> query) {
  std::vector<int> chosen(static_cast<std::size_t>(choice.pages));
  std::iota(chosen.begin(), chosen.end(), 0);
  if (choice.pages <= choice.count) {
    return chosen;
  }
  std::vector<float> bound(chosen.size());
  std::ranges::transform(chosen, bound.begin(),
                         [&](int page) { return bounds.upper_bound(page, query); });
  if (choice.with_last) {
    bound.back() = std::numeric_limits<float>::infinity();
  }
  std::ranges::stable_sort(chosen, [&](int a, int b) {
    return bound[static_cast<std::size_t>(a)] > bound[static_cast<std::size_t>(b)];
  });
  chosen.resize(static_cast<std::size_t>(choice.count));
  std::ranges::sort(chosen);
  return chosen;
}

}  // namespace winnow::kvcache
