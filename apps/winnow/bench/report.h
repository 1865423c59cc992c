// The output of winnow bench.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/winnow/bench/setup.h"

namespace winnow::cli {

/// The measurements, and numbers derived from them.
struct FixedBatchReport {
  BenchResult result;
  std::size_t weight_bytes_per_step = 0;
  std::size_t peak_rss = 0;
  double bandwidth = 0.0;

  [[nodiscard]] std::size_t step_bytes() const {
    return weight_bytes_per_step + result.entry_bytes_per_step;
  }
  /// The fastest decoding that memory bandwidth allows: it has to read the bytes of a step.
  [[nodiscard]] double floor_tokens_per_s() const {
    return bandwidth * result.batch / static_cast<double>(step_bytes());
  }
  [[nodiscard]] double share_of_floor() const {
    return median(result.decode_tokens_per_s) / floor_tokens_per_s();
  }
};

nlohmann::ordered_json to_json(const BenchOptions& options, const Setup& setup,
                               const FixedBatchReport& report);
std::string table(const BenchOptions& options, const Setup& setup, const FixedBatchReport& report);

nlohmann::ordered_json to_json(const BenchOptions& options, const Setup& setup,
                               const FullLoadResult& result);
std::string table(const BenchOptions& options, const Setup& setup, const FullLoadResult& result);

nlohmann::ordered_json to_json(const BenchOptions& options, const Setup& setup,
                               const FirstTokenResult& result);
std::string table(const BenchOptions& options, const Setup& setup, const FirstTokenResult& result);

}  // namespace winnow::cli
