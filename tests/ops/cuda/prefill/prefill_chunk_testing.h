// A chunk of tokens for prefill attention on the device, and the entries that each query sees.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "base/cuda/device.h"
#include "base/random.h"
#include "ops/codebook.h"
#include "ops/cpu/attention/attention_testing.h"
#include "ops/cuda/prefill/prefill_attention.h"

namespace winnow::ops::cuda::testing {

using ops::testing::Entries;
using winnow::cuda::DeviceBuffer;

/// How one head's archive grows: it has `before` entries when the chunk begins, and each token adds
/// one more with probability `rate`.
struct Growth {
  int before;
  double rate;
};

struct Scenario {
  int tokens;
  int lead;
  int window;
  std::vector<Growth> heads;
  int first_out = 0;
};

/// A chunk on the device and its source data. Free slots, the band's unused rows, the output
/// and the scratch hold NaNs.
class Chunk {
 public:
  Chunk(const DevicePageLayout& layout, int group, const Scenario& scenario)
      : layout_(layout), group_(group), scenario_(scenario) {
    draw_queries();
    for (std::size_t head = 0; head < scenario.heads.size(); ++head) {
      draw_archive(head);
      draw_band(head);
    }
    upload();
  }

  /// The chunk's output after run(chunk, stream); checks that nothing else was written.
  template <class Run>
  std::vector<float> attend(const Run& run) {
    const winnow::cuda::Stream stream;
    out_.fill(0xFF);
    scratch_.fill(0xFF);
    winnow::cuda::check(cudaDeviceSynchronize(), "fill");  // our stream does not wait for others
    run(chunk_, stream.get());
    stream.synchronize();
    std::vector<bf16> raw(out_.size());
    out_.read(raw);
    const auto is_unwritten = [](bf16 x) { return x.bits == 0xFFFF; };
    EXPECT_TRUE(
        std::ranges::all_of(std::span(raw).first(row(scenario_.first_out, 0)), is_unwritten))
        << "written before the first row that is wanted";
    EXPECT_TRUE(std::ranges::all_of(std::span(raw).subspan(queries_.size()), is_unwritten))
        << "written past the end";
    std::vector<float> result(queries_.size());
    std::transform(raw.begin(), raw.begin() + static_cast<std::ptrdiff_t>(result.size()),
                   result.begin(), [](bf16 x) { return to_float(x); });
    return result;
  }

  /// The entries that a query sees.
  [[nodiscard]] std::vector<ops::testing::Seen> seen(int token, int query_head) const {
    const auto head = static_cast<std::size_t>(query_head / group_);
    const Entries& band = bands_[head];
    std::vector<ops::testing::Seen> seen;
    ops::testing::add_all(archives_[head], count(head, token), seen);
    for (int j = 0; j <= scenario_.lead + token; ++j) {
      if (scenario_.lead + token - j <= scenario_.window) {
        seen.push_back({band.key(j), band.value(j)});
      }
    }
    return seen;
  }
  [[nodiscard]] std::span<const float> query(int token, int query_head) const {
    return std::span(queries_).subspan(row(token, query_head),
                                       static_cast<std::size_t>(layout_.head_dim()));
  }

  /// Where a query head's channels of a token begin.
  [[nodiscard]] std::size_t row(int token, int query_head) const {
    return static_cast<std::size_t>((token * heads() * group_ + query_head) * layout_.head_dim());
  }
  [[nodiscard]] int heads() const { return static_cast<int>(scenario_.heads.size()); }
  [[nodiscard]] const Scenario& scenario() const { return scenario_; }
  [[nodiscard]] const DevicePageLayout& layout() const { return layout_; }
  [[nodiscard]] float scale() const {
    return 1.0F / std::sqrt(static_cast<float>(layout_.head_dim()));
  }

 private:
  static constexpr int kSpare = 19;  // rows of the band that are not used

  [[nodiscard]] int band_entries() const { return scenario_.lead + scenario_.tokens; }
  [[nodiscard]] int count(std::size_t head, int token) const {
    return counts_[head * static_cast<std::size_t>(scenario_.tokens) +
                   static_cast<std::size_t>(token)];
  }

  void draw_queries() {
    queries_ = ops::testing::normal(row(scenario_.tokens, 0), 99);
    for (float& x : queries_) {
      x = to_float(to_bf16(x));
    }
  }

  void draw_archive(std::size_t head) {
    Random random(head, 7);
    int entries = scenario_.heads[head].before;
    for (int t = 0; t < scenario_.tokens; ++t) {
      counts_.push_back(entries);
      entries += random.uniform() < scenario_.heads[head].rate ? 1 : 0;
    }
    archives_.emplace_back(layout_.host(), entries, 2 * head + 1, 1.5F);
  }

  static void put_half(std::byte& pair, std::size_t channel, std::uint32_t code) {
    const auto bits = static_cast<std::byte>(code);
    pair = channel % 2 == 0 ? bits : pair | bits << 4;
  }

  // The band's entries as a list of codes, read back from pages of the same entries.
  void draw_band(std::size_t head) {
    bands_.emplace_back(layout_.host(), band_entries(), 2 * head + 2, 1.5F);
    const PageLayout& page = layout_.host();
    const auto dim = static_cast<std::size_t>(page.head_dim());
    const std::size_t row_bytes = layout_.row_bytes();
    const std::size_t rows = static_cast<std::size_t>(band_entries() + kSpare);
    std::vector<std::byte> keys(rows * row_bytes, std::byte{0xFF});
    std::vector<std::byte> values(keys.size(), std::byte{0xFF});
    std::vector<bf16> scales(2 * rows, bf16{0xFFFF});
    const EntrySpan span = bands_[head].span();
    for (std::size_t j = 0; j < static_cast<std::size_t>(span.count); ++j) {
      const std::byte* at = span.base + span.pages[j / kPageEntries] * page.page_bytes();
      const std::size_t slot = j % kPageEntries;
      const std::byte* value = at + page.values_offset() + slot * page.row_bytes();
      for (std::size_t d = 0; d < dim; ++d) {
        if (page.format() == EntryFormat::q4) {
          const std::size_t place = j * row_bytes + d / 2;
          put_half(keys[place], d, packed_code(at, d * kPageEntries + slot));
          put_half(values[place], d, packed_code(value, d));
        } else {
          const std::size_t bytes = row_bytes / dim;
          std::copy_n(at + (d * kPageEntries + slot) * bytes, bytes, &keys[(j * dim + d) * bytes]);
          std::copy_n(value + d * bytes, bytes, &values[(j * dim + d) * bytes]);
        }
      }
      for (std::size_t part = 0; part < 2 && page.scaled(); ++part) {
        std::memcpy(&scales[part * rows + j],
                    at + page.scales_offset() + (part * kPageEntries + slot) * sizeof(bf16),
                    sizeof(bf16));
      }
    }
    band_keys_.insert(band_keys_.end(), keys.begin(), keys.end());
    band_values_.insert(band_values_.end(), values.begin(), values.end());
    band_scales_.insert(band_scales_.end(), scales.begin(), scales.end());
  }

  // Pages of all archives, the last one first.
  void upload_archives() {
    const std::size_t bytes = layout_.page_bytes();
    std::size_t stride = 0;
    for (const Entries& archive : archives_) {
      stride = std::max(stride, pages_of(archive));
    }
    std::vector<std::uint32_t> table(stride * archives_.size() + 1);
    std::vector<std::byte> memory(bytes);
    for (std::size_t head = 0; head < archives_.size(); ++head) {
      const EntrySpan span = archives_[head].span();
      for (std::size_t p = pages_of(archives_[head]); p-- > 0;) {
        table[head * stride + p] = static_cast<std::uint32_t>(memory.size() / bytes);
        memory.resize(memory.size() + bytes);
        arrange_page(layout_, span.base + span.pages[p] * layout_.host().page_bytes(),
                     memory.data() + memory.size() - bytes);
      }
    }
    pool_ = DeviceBuffer<std::byte>(std::span<const std::byte>(memory));
    table_ = DeviceBuffer<std::uint32_t>(std::span<const std::uint32_t>(table));
    chunk_.archive_stride = stride;
  }
  static std::size_t pages_of(const Entries& row) {
    return (static_cast<std::size_t>(row.count()) + kPageEntries - 1) / kPageEntries;
  }

  void upload() {
    upload_archives();
    std::vector<bf16> queries;
    std::ranges::transform(queries_, std::back_inserter(queries), to_bf16);
    constexpr std::size_t kGuard = 256;
    query_ = DeviceBuffer<bf16>(std::span<const bf16>(queries));
    out_ = DeviceBuffer<bf16>(queries.size() + kGuard);
    keys_ = DeviceBuffer<std::byte>(std::span<const std::byte>(band_keys_));
    values_ = DeviceBuffer<std::byte>(std::span<const std::byte>(band_values_));
    scales_ = DeviceBuffer<bf16>(std::span<const bf16>(band_scales_));
    device_counts_ = DeviceBuffer<std::int32_t>(std::span<const std::int32_t>(counts_));
    scratch_ = DeviceBuffer<std::byte>(
        prefill_scratch_bytes(layout_, heads(), band_entries(), chunk_.archive_stride));
    chunk_ = {.query = query_.data(),
              .out = out_.data(),
              .tokens = scenario_.tokens,
              .first_out = scenario_.first_out,
              .lead = scenario_.lead,
              .window = scenario_.window,
              .band_keys = keys_.data(),
              .band_values = values_.data(),
              .band_scales = scales_.data(),
              .band_stride = band_entries() + kSpare,
              .pool = pool_.data(),
              .archive_pages = table_.data(),
              .archive_stride = chunk_.archive_stride,
              .archive_counts = device_counts_.data(),
              .scratch = scratch_.data()};
  }

  DevicePageLayout layout_;
  int group_;
  Scenario scenario_;
  std::vector<float> queries_;
  std::vector<Entries> archives_;
  std::vector<Entries> bands_;
  std::vector<std::int32_t> counts_;
  std::vector<std::byte> band_keys_;
  std::vector<std::byte> band_values_;
  std::vector<bf16> band_scales_;
  DeviceBuffer<bf16> query_;
  DeviceBuffer<bf16> out_;
  DeviceBuffer<std::byte> keys_;
  DeviceBuffer<std::byte> values_;
  DeviceBuffer<bf16> scales_;
  DeviceBuffer<std::byte> pool_;
  DeviceBuffer<std::uint32_t> table_;
  DeviceBuffer<std::int32_t> device_counts_;
  DeviceBuffer<std::byte> scratch_;
  PrefillChunk chunk_;
};

}  // namespace winnow::ops::cuda::testing
