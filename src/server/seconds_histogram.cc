#include "server/seconds_histogram.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/metric_text.h"

namespace winnow::server {

void SecondsHistogram::observe(double seconds) {
  const auto bucket = std::ranges::lower_bound(kBounds, seconds) - kBounds.begin();
  ++counts_[static_cast<std::size_t>(bucket)];
  microseconds_ += static_cast<std::int64_t>(seconds * 1e6);
}

void SecondsHistogram::render(std::string_view name, std::string_view help, std::string& page,
                              std::string_view labels) const {
  describe(name, "histogram", help, page);
  const std::string_view comma = labels.empty() ? "" : ",";
  std::int64_t total = 0;
  for (std::size_t i = 0; i < kBounds.size(); ++i) {
    total += counts_[i];
    page += fmt::format("{}_bucket{{{}{}le=\"{}\"}} {}\n", name, labels, comma, kBounds[i], total);
  }
  total += counts_.back();
  page += fmt::format("{}_bucket{{{}{}le=\"+Inf\"}} {}\n", name, labels, comma, total);
  const std::string set = labels.empty() ? "" : fmt::format("{{{}}}", labels);
  page += fmt::format("{0}_sum{1} {2}\n{0}_count{1} {3}\n", name, set,
                      static_cast<double>(microseconds_) / 1e6, total);
}

}  // namespace winnow::server
