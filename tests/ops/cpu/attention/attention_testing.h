// Cached entries for tests of attention, and attention over them in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "base/random.h"
#include "ops/attention.h"
#include "ops/random_values.h"
#include "ops/rotation.h"

namespace winnow::ops::testing {

/// Entries on pages in a random order, and their values. Free slots hold NaNs, which a correct
/// kernel never reads.
class Entries {
 public:
  Entries(const PageLayout& layout, int count, std::uint64_t seed, float spread = 1.0F)
      : layout_(layout), count_(count) {
    const auto dim = static_cast<std::size_t>(layout.head_dim());
    const auto pages = static_cast<std::size_t>((count + kPageEntries - 1) / kPageEntries);
    memory_.assign((pages + 1) * layout.page_bytes() / sizeof(float) + 16, std::nanf(""));
    std::memset(memory_.data(), 0xFF, memory_.size() * sizeof(float));
    pages_.resize(pages);
    std::iota(pages_.begin(), pages_.end(), 0U);
    Random random(seed);
    for (std::size_t i = pages; i > 1; --i) {
      std::swap(pages_[i - 1],
                pages_[static_cast<std::size_t>(random.uniform() * static_cast<double>(i))]);
    }
    keys_ = normal(static_cast<std::size_t>(count) * dim, seed + 1, spread);
    values_ = layout.joint() ? keys_ : normal(static_cast<std::size_t>(count) * dim, seed + 2);
    for (int i = 0; i < count; ++i) {
      store(i);
    }
  }

  [[nodiscard]] EntrySpan span() const { return {base(), pages_.data(), count_}; }
  [[nodiscard]] int count() const { return count_; }
  [[nodiscard]] std::span<const float> key(int i) const { return row(keys_, i); }
  [[nodiscard]] std::span<const float> value(int i) const { return row(values_, i); }

 private:
  [[nodiscard]] std::span<const float> row(const std::vector<float>& rows, int i) const {
    const auto dim = static_cast<std::size_t>(layout_.head_dim());
    return std::span(rows).subspan(static_cast<std::size_t>(i) * dim, dim);
  }
  [[nodiscard]] const std::byte* base() const {
    return reinterpret_cast<const std::byte*>(memory_.data());
  }
  // Rounds entry i and stores it in its slot.
  void store(int i) {
    const auto dim = static_cast<std::size_t>(layout_.head_dim());
    const std::size_t begin = static_cast<std::size_t>(i) * dim;
    std::vector<std::byte> key_codes(layout_.row_bytes());
    std::vector<std::byte> value_codes(key_codes.size());
    QuantizedRow key{key_codes, {}};
    QuantizedRow value{value_codes, {}};
    quantize_row(layout_, row(keys_, i), key);
    quantize_row(layout_, row(values_, i), value);
    auto* page = reinterpret_cast<std::byte*>(memory_.data()) +
                 pages_[static_cast<std::size_t>(i / kPageEntries)] * layout_.page_bytes();
    store_entry(layout_, page, i % kPageEntries, key, value);
    dequantize_row(layout_, key, std::span(&keys_[begin], dim));
    dequantize_row(layout_, value, std::span(&values_[begin], dim));
  }

  PageLayout layout_;
  int count_;
  std::vector<float> memory_;
  std::vector<std::uint32_t> pages_;
  std::vector<float> keys_;
  std::vector<float> values_;
};

/// One (key, value) that a query sees.
struct Seen {
  std::span<const float> key;
  std::span<const float> value;
};

struct Exact {
  std::vector<double> out;
  std::vector<double> weights;
};

/// A soft cap of 0 means none, and so does a null sink.
inline Exact attend(std::span<const float> query, const std::vector<Seen>& seen, double scale,
                    double soft_cap = 0.0, const float* sink = nullptr) {
  Exact exact{std::vector<double>(query.size()), {}};
  for (const Seen& entry : seen) {
    exact.weights.push_back(scale * std::inner_product(query.begin(), query.end(),
                                                       entry.key.begin(), 0.0, std::plus<>(),
                                                       [](double a, double b) { return a * b; }));
  }
  if (soft_cap > 0.0) {
    for (double& score : exact.weights) {
      score = soft_cap * std::tanh(score / soft_cap);
    }
  }
  const double largest = seen.empty() ? 0.0 : *std::ranges::max_element(exact.weights);
  double sum = sink == nullptr ? 0.0 : std::exp(double{*sink} - largest);
  for (double& weight : exact.weights) {
    weight = std::exp(weight - largest);
    sum += weight;
  }
  for (std::size_t j = 0; j < seen.size(); ++j) {
    exact.weights[j] /= sum;
    for (std::size_t d = 0; d < query.size(); ++d) {
      exact.out[d] += exact.weights[j] * seen[j].value[d];
    }
  }
  return exact;
}

/// Rotates an output over rotated entries back; does not change others.
inline void rotate_back(const PageLayout& layout, std::vector<double>& out) {
  if (layout.rotated()) {
    std::vector<float> rotated(out.begin(), out.end());
    ops::rotate_back(rotated);
    out.assign(rotated.begin(), rotated.end());
  }
}

inline void add_all(const Entries& entries, int count, std::vector<Seen>& seen) {
  for (int i = 0; i < count; ++i) {
    seen.push_back({entries.key(i), entries.value(i)});
  }
}

template <class Numbers>
double largest_difference(std::span<const float> a, const Numbers& b) {
  double largest = a.size() == b.size() ? 0.0 : 1e30;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double difference = std::abs(double{a[i]} - double{b[i]});
    largest = difference <= largest ? largest : difference;  // keeps a NaN
  }
  return largest;
}

/// `shape` with entries that are both key and value.
inline AttentionShape joint(AttentionShape shape) {
  shape.archive = PageLayout(shape.archive.format(), shape.head_dim, true);
  shape.window = PageLayout(shape.window.format(), shape.head_dim, true);
  return shape;
}

inline AttentionShape shape_of(EntryFormat format, int dim, int group) {
  return {dim, group, 1.0F / std::sqrt(static_cast<float>(dim)), PageLayout(format, dim),
          PageLayout(format, dim)};
}

}  // namespace winnow::ops::testing
