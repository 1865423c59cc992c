// Quest (Tang et al. 2024): read only the pages whose keys could score highest.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace winnow::kvcache {

/// Per-channel minimum and maximum of the keys of each page of `page_entries` entries.
class PageBounds {
 public:
  /// Widens the bounds of the page that holds entry `index`. Entries are added in order.
  void add(int index, int page_entries, std::span<const float> key);

  /// Upper bound of query . key over the page: sum_d max(q_d min_d, q_d max_d).
  [[nodiscard]] float upper_bound(int page, std::span<const float> query) const;

  [[nodiscard]] std::size_t bytes() const { return bounds_.capacity() * sizeof(float); }

 private:
  std::vector<float> bounds_;  // [pages][minimum, maximum][head_dim]
};

/// The pages of an archive that a query may choose from.
struct PageChoice {
  int pages = 0;           // pages of the archive
  int count = 0;           // pages that a query reads
  bool with_last = false;  // always read the last page: without a window it has the newest token
};

/// The pages that a query reads, ascending: those with the highest upper bound, the oldest of
/// equals.
std::vector<int> select_pages(const PageBounds& bounds, const PageChoice& choice,
                              std::span<const float> query);

}  // namespace winnow::kvcache
