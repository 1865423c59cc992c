// Prometheus's text format.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace winnow::server {

/// Writes the header of a metric.
inline void describe(std::string_view name, std::string_view type, std::string_view help,
                     std::string& page) {
  page += fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n", name, type, help);
}

/// A metric with one value. `labels`: {name="value"}, or empty.
template <class Number>
void add(std::string_view name, std::string_view type, std::string_view help, Number value,
         std::string& page, std::string_view labels = {}) {
  describe(name, type, help, page);
  page += fmt::format("{}{} {}\n", name, labels, value);
}

}  // namespace winnow::server
