// Quest's choice of pages by its definition, in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "kvcache/reference_attention.h"
#include "kvcache/reference_evictions.h"

namespace winnow::testing {

/// The limits of what a query may read.
struct PageBudget {
  double cr;
  std::size_t entries;
  bool with_last;  // always read the page of the newest token
};

/// The highest possible score of a query with an entry of the page, channel by channel.
inline double upper_bound(const std::vector<ReferenceEntry>& entries,
                          std::span<const std::size_t> page, std::span<const float> query) {
  double bound = 0.0;
  for (std::size_t d = 0; d < query.size(); ++d) {
    double best = -std::numeric_limits<double>::infinity();
    for (const std::size_t j : page) {
      best = std::max(best, query[d] * entries[j].key[d]);
    }
    bound += best;
  }
  return bound;
}

/// The entries on the pages with the highest bounds, out of those at positions `archive`, which
/// ascend.
inline std::vector<std::size_t> best_pages(const std::vector<ReferenceEntry>& entries,
                                           const std::vector<std::size_t>& archive,
                                           const PageBudget& budget, std::span<const float> query,
                                           const NoteGap& note) {
  const auto wanted_size =
      std::max<std::size_t>(16, static_cast<std::size_t>(std::ceil(2.0 * budget.cr)));
  const std::size_t size = (wanted_size + 15) / 16 * 16;
  const std::size_t pages = (archive.size() + size - 1) / size;
  const std::size_t count = (budget.entries + size - 1) / size;
  const auto page_of = [&](std::size_t page) {
    const auto rest = std::span(archive).subspan(page * size);
    return rest.first(std::min(size, rest.size()));
  };
  std::vector<std::pair<double, std::size_t>> bounds;  // negated: the highest sorts first
  for (std::size_t page = 0; page < pages; ++page) {
    const double bound = page + 1 == pages && budget.with_last
                             ? std::numeric_limits<double>::infinity()
                             : upper_bound(entries, page_of(page), query);
    bounds.emplace_back(-bound, page);
  }
  std::ranges::sort(bounds);
  if (pages > count) {
    if (count > 1 || !budget.with_last) {
      note(-bounds[count - 1].first, -bounds[count].first);
    }
    bounds.resize(count);
  }
  std::set<std::size_t> read;
  for (const auto& [bound, page] : bounds) {
    read.insert(page_of(page).begin(), page_of(page).end());
  }
  return {read.begin(), read.end()};
}

}  // namespace winnow::testing
