// Compares the device's cache with the host's, head by head, bit for bit.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/random.h"
#include "kvcache/any_calibration.h"
#include "kvcache/cuda/append/append.h"
#include "kvcache/cuda/cache_case.h"
#include "kvcache/head_cache.h"
#include "kvcache/sequence_cache.h"
#include "ops/cuda/pages/page_address.cuh"
#include "ops/rotation.h"

namespace winnow::kvcache::cuda::testing {

using winnow::cuda::DeviceBuffer;
using winnow::cuda::Stream;

inline constexpr int kLayers = 2;
inline constexpr int kKvHeads = 3;
inline constexpr int kChannel = 5;  // of decisions

/// Puts the same tokens through both caches. Angles are zero, so that nothing is rotated. The
/// decision is the sign of a channel, which is then cleared.
class CachePair {
 public:
  explicit CachePair(const Case& c) {
    stream_.emplace();
    config_.rule = c.rule;
    config_.cr = c.cr;
    config_.format = c.format;
    config_.window = c.window;
    config_.shift = c.shift;
    config_.max_bytes = std::size_t{64} << 20;
    shape_ = {kLayers, kKvHeads, c.head_dim, c.group};
    if (c.reach > 0) {
      shape_.reach = {0, c.reach};
      shape_.chunked = c.chunked;
    }
    if (config_.traits().calibrated || config_.traits().notes_queries()) {
      std::vector<float> frequencies;
      for (int i = 0; i < c.head_dim / 4; ++i) {
        frequencies.push_back(1.0F / static_cast<float>(1 + i));
      }
      shape_.ropes = {{frequencies, false}, {frequencies, true}};
      shape_.calibration = winnow::testing::any_calibration(shape_);
    }
    host_ = std::make_unique<Cache>(config_, shape_);
    device_ = std::make_unique<DeviceCache>(config_, shape_);
    width_ = static_cast<std::size_t>((c.group + 2) * kKvHeads * c.head_dim);
  }

  struct Sequence {
    SequenceCache host;
    int slot;
    std::uint64_t seed;
  };

  Sequence open(std::uint64_t seed, SequenceLimits limits = {300, 700}) {
    return {SequenceCache(*host_, limits), device_->open(limits, stream_->get()), seed};
  }
  /// Forks a sequence, which continues with tokens of its own.
  Sequence fork(const Sequence& sequence, std::uint64_t seed) {
    return {sequence.host.fork(), device_->fork(sequence.slot, stream_->get()), seed};
  }
  void close(const Sequence& sequence) { device_->close(sequence.slot, stream_->get()); }

  [[nodiscard]] DeviceCache& device() { return *device_; }
  [[nodiscard]] cudaStream_t stream() const { return stream_->get(); }

  // q, k and v of the token at `position`; keys and values large enough to have a scale.
  [[nodiscard]] std::vector<float> products(const Sequence& sequence, int layer,
                                            int position) const {
    Random random(sequence.seed,
                  static_cast<std::uint64_t>(layer) << 32 | static_cast<std::uint64_t>(position));
    std::vector<float> x(width_);
    for (float& value : x) {
      value = to_float(to_bf16(static_cast<float>(random.normal())));  // prefill reads bf16
    }
    for (int head = 0; head < kKvHeads && config_.rule == RuleKind::dmc; ++head) {
      // Makes weights 1/2 or 1: for other values, exponential functions differ in the last bits.
      float& omega = x[static_cast<std::size_t>(head * shape_.group * shape_.head_dim + kChannel)];
      omega = omega > 0.0F ? 100.0F : 0.0F;
    }
    return x;
  }

  void append_on_host(Sequence& sequence, int layer, std::vector<float> x,
                      const Band* band = nullptr, int band_entry = 0) {
    const auto dim = static_cast<std::size_t>(shape_.head_dim);
    const auto group = static_cast<std::size_t>(shape_.group);
    for (int head = 0; head < kKvHeads; ++head) {
      const auto h = static_cast<std::size_t>(head);
      const auto column = [&](std::size_t index) { return std::span(x).subspan(index * dim, dim); };
      const std::span<float> key = column(kKvHeads * group + h);
      const float channel = column(h * group)[kChannel];
      Token token{key, column(kKvHeads * (group + 1) + h), channel > 0.3F, 1.0F, logit_of(channel)};
      if (config_.rule == RuleKind::dmc) {
        token.decision = key[kChannel] > 0.3F;
        token.omega = column(h * group)[kChannel] > 0.0F ? 1.0F : 0.5F;
        key[kChannel] = 0.0F;
      }
      if (rotated()) {
        ops::rotate(key);
        ops::rotate(column(kKvHeads * (group + 1) + h));
      }
      std::vector<float> seen_key(dim);
      std::vector<float> seen_value(dim);
      sequence.host.head(layer, head)
          .append(sequence.host.rule(layer), token, seen_key, seen_value);
      if (band != nullptr && device_->merges(layer)) {
        expect_band(band->keys, *band, head, band_entry, seen_key);
        expect_band(band->values, *band, head, band_entry, seen_value);
      }
    }
  }

  // Of the decision that the device makes, see projection().
  static float logit_of(float channel) { return 10.0F * channel - 3.0F; }

  // DMC: compares what a chunk's queries see of the open entry.
  void expect_band(const DeviceBuffer<std::byte>& band, const Band& shape, int head, int entry,
                   std::span<const float> seen) {
    const auto bits = read(reinterpret_cast<const std::uint16_t*>(band.data()) +
                               static_cast<std::size_t>(head * shape.stride + entry) * seen.size(),
                           seen.size());
    for (std::size_t d = 0; d < seen.size(); ++d) {
      ASSERT_EQ(bits[d], config_.format == ops::EntryFormat::bf16 ? to_bf16(seen[d]).bits
                                                                  : to_f16(seen[d]).bits)
          << "band entry " << entry << " channel " << d;
    }
  }

  [[nodiscard]] Projection projection(int tokens) {
    const std::vector<float> still(static_cast<std::size_t>(tokens * shape_.head_dim));
    std::vector<float2> angles(still.size() / 2, float2{1.0F, 0.0F});
    angles_ = DeviceBuffer<float2>(std::span<const float2>(angles));
    Projection projection;
    projection.kv_heads = kKvHeads;
    projection.group = shape_.group;
    projection.angles = angles_.data();
    const bool merges = config_.rule == RuleKind::dmc;
    projection.decision.kind = merges ? DecisionSource::Kind::merge : DecisionSource::Kind::channel;
    projection.decision.scale = 10.0F;
    projection.decision.offset = merges ? 0.3F : 3.0F;
    projection.decision.channel = kChannel;
    return projection;
  }

  // Takes one token of each sequence.
  void decode(std::span<Sequence*> sequences) {
    std::vector<std::int32_t> slots;
    for (const Sequence* sequence : sequences) {
      slots.push_back(sequence->slot);
    }
    const DeviceBuffer<std::int32_t> device_slots{std::span<const std::int32_t>(slots)};
    const int batch = static_cast<int>(sequences.size());
    const Projection how = projection(batch);
    for (int layer = 0; layer < kLayers; ++layer) {
      std::vector<float> all;
      for (Sequence* sequence : sequences) {
        const auto x = products(*sequence, layer, device_->length(sequence->slot));
        append_on_host(*sequence, layer, x);
        all.insert(all.end(), x.begin(), x.end());
      }
      const DeviceBuffer<float> qkv{std::span<const float>(all)};
      DeviceBuffer<float> queries(slots.size() * query_width());
      const DeviceBuffer<float> open_scores(slots.size() * query_width());
      append(*device_, how,
             DecodeAppend{layer, batch, device_slots.data(), qkv.data(), queries.data(),
                          open_scores.data()},
             stream_->get());
      std::vector<float> read(queries.size());
      stream_->synchronize();
      queries.read(read);
      for (std::size_t b = 0; b < slots.size(); ++b) {
        expect_queries(std::span(read).subspan(b * query_width(), query_width()),
                       std::span(all).subspan(b * width_, query_width()));
      }
    }
    for (const std::int32_t slot : slots) {
      advance(*device_, slot, 1, stream_->get());
    }
  }

  // With chunked attention, takes one chunk after another.
  void prefill(Sequence& sequence, int tokens) {
    while (tokens > 0) {
      int piece = tokens;
      if (shape_.chunked) {
        const int reach = shape_.reach.back();
        piece = std::min(piece, reach - device_->length(sequence.slot) % reach);
      }
      if (device_->limits_archive()) {
        piece = std::max(1, rows_at_once(sequence, piece));
      }
      prefill_piece(sequence, piece);
      tokens -= piece;
    }
  }

  // The next tokens that all layers take at once, or 0.
  static int rows_at_once(const Sequence& sequence, int tokens) {
    for (int layer = 0; layer < kLayers; ++layer) {
      tokens = sequence.host.rows_at_once(layer, tokens);
    }
    return tokens;
  }

  void prefill_piece(Sequence& sequence, int tokens) {
    Band band(*device_, tokens);
    const Projection how = projection(tokens);
    const int length = device_->length(sequence.slot);
    for (int layer = 0; layer < kLayers; ++layer) {
      std::vector<bf16> all;
      std::vector<std::vector<float>> rows;
      for (int t = 0; t < tokens; ++t) {
        rows.push_back(products(sequence, layer, length + t));
        for (const float value : rows.back()) {
          all.push_back(to_bf16(value));
        }
      }
      const DeviceBuffer<bf16> qkv{std::span<const bf16>(all)};
      DeviceBuffer<bf16> queries(static_cast<std::size_t>(tokens) * query_width());
      append(*device_, how,
             PrefillAppend{layer, sequence.slot, length, tokens, {qkv.data()}, queries.data()},
             band, stream_->get());
      stream_->synchronize();
      std::vector<std::int32_t> seen(static_cast<std::size_t>(kKvHeads * tokens));
      band.seen.read(seen);
      for (int t = 0; t < tokens; ++t) {
        append_on_host(sequence, layer, rows[static_cast<std::size_t>(t)], &band, t);
        for (int head = 0; head < kKvHeads && device_->ring(layer, sequence.slot) > 0; ++head) {
          ASSERT_EQ(seen[static_cast<std::size_t>(head * tokens + t)],
                    sequence.host.head(layer, head).archive().size())
              << "token " << length + t << " head " << head;
        }
      }
    }
    advance(*device_, sequence.slot, tokens, stream_->get());
  }

  [[nodiscard]] std::size_t query_width() const {
    return static_cast<std::size_t>(shape_.group * kKvHeads * shape_.head_dim);
  }

  void expect_queries(std::span<const float> got, std::span<const float> products) const {
    const auto dim = static_cast<std::size_t>(shape_.head_dim);
    const auto group = static_cast<std::size_t>(shape_.group);
    std::vector<float> expected(products.begin(), products.end());
    for (std::size_t i = 0; i < got.size(); ++i) {
      expected[i] = i / dim % group == 0 && i % dim == kChannel ? 0.0F : expected[i];
    }
    for (std::size_t first = 0; first < got.size() && rotated(); first += dim) {
      ops::rotate(std::span(expected).subspan(first, dim));
    }
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i], expected[i]) << i;
    }
  }

  [[nodiscard]] bool rotated() const { return host_->archive_pool().layout().rotated(); }

  // Compares all entries of a sequence in both caches.
  void expect_same(const Sequence& sequence) {
    stream_->synchronize();
    const CacheView& view = device_->view();
    const std::size_t rows = view.row(kLayers - 1, view.slots - 1, kKvHeads - 1) + 1;
    const auto archive_pages = read(view.archive_pages, rows * view.archive_stride);
    const auto archive_counts = read(view.archive_counts, rows);
    const auto window_pages = read(view.window_pages, rows * view.window_stride);
    const auto lengths = read(view.lengths, static_cast<std::size_t>(view.slots));
    ASSERT_EQ(lengths[static_cast<std::size_t>(sequence.slot)], sequence.host.length());
    for (int layer = 0; layer < kLayers; ++layer) {
      for (int head = 0; head < kKvHeads; ++head) {
        const HeadCache& host = sequence.host.head(layer, head);
        const std::size_t row = view.row(layer, sequence.slot, head);
        ASSERT_EQ(archive_counts[row], host.archive().size()) << layer << " " << head;
        expect_same(host.archive(), &archive_pages[row * view.archive_stride]);
        if (device_->merges(layer)) {
          expect_same_open(host, row);
        } else {
          expect_same(host.window(), &window_pages[row * view.window_stride]);
        }
      }
    }
  }

  void expect_same_open(const HeadCache& host, std::size_t row) {
    if (host.length() == 0) {
      return;
    }
    const auto dim = static_cast<std::size_t>(shape_.head_dim);
    std::vector<float> key(dim);
    std::vector<float> value(dim);
    host.load_window(Rule(config_, {}), 0, key, value);
    EXPECT_EQ(read(device_->view().open_keys + row * dim, dim), key);
    EXPECT_EQ(read(device_->view().open_values + row * dim, dim), value);
  }

  void expect_same(const EntryList& host, const std::uint32_t* pages) {
    const auto& layout = device_->layout();
    const int bytes = layout.code_bits() / 8;
    const ops::cuda::PageAddress address{layout.head_dim(), layout.code_bits()};
    std::vector<std::byte> arranged(layout.page_bytes());
    for (int i = 0; i < host.size(); ++i) {
      const int entry = i % ops::kPageEntries;
      ops::cuda::arrange_page(layout, host.at(i).page, arranged.data());
      if (entry == 0) {
        page_ = read(device_->view().pool + pages[i / ops::kPageEntries] * layout.page_bytes(),
                     layout.page_bytes());
      }
      const auto same = [&](int offset, int count) {
        for (int b = 0; b < count; ++b) {
          ASSERT_EQ(page_[static_cast<std::size_t>(offset + b)],
                    arranged[static_cast<std::size_t>(offset + b)])
              << "entry " << i << " byte " << offset + b;
        }
      };
      for (int d = 0; d < layout.head_dim(); ++d) {
        if (layout.code_bits() == 4) {
          for (const auto place : {address.key_code(entry, d), address.value_code(entry, d)}) {
            ASSERT_EQ(code_at(page_, place), code_at(arranged, place)) << "entry " << i << " " << d;
          }
        } else {
          same(address.key(entry, d), bytes);
          same(address.value(entry, d), bytes);
        }
      }
      if (address.scaled()) {
        same(address.key_scale(entry), 2);
        same(address.value_scale(entry), 2);
      }
    }
  }

  static std::uint32_t code_at(const std::vector<std::byte>& page, ops::cuda::CodePlace place) {
    std::uint32_t word;
    std::memcpy(&word, page.data() + place.offset, sizeof(word));
    return ops::cuda::code_from(word, place.index);
  }

  template <class T>
  static std::vector<T> read(const T* from, std::size_t count) {
    std::vector<T> result(count);
    winnow::cuda::check(cudaMemcpy(result.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost),
                        "read");
    return result;
  }

  [[nodiscard]] std::size_t pages_in_use() {
    return device_->used_page_bytes(stream_->get()) / (device_->bytes(1) - device_->bytes(0));
  }

  // Every page is on the free list once, or its number of holders is right.
  void expect_pages_accounted(const std::vector<Sequence>& sequences) {
    stream_->synchronize();
    const CacheView& view = device_->view();
    const std::size_t rows = view.row(kLayers - 1, view.slots - 1, kKvHeads - 1) + 1;
    const auto archive_pages = read(view.archive_pages, rows * view.archive_stride);
    const auto archive_counts = read(view.archive_counts, rows);
    const auto window_pages = read(view.window_pages, rows * view.window_stride);
    const auto free_count = static_cast<std::size_t>(read(view.free_count, 1).front());
    const auto free_pages = read(view.free_pages, free_count);
    const auto sharers = read(view.sharers, device_->capacity());
    std::vector<std::uint32_t> holders(device_->capacity(), 0);
    const auto hold = [&](const std::uint32_t* pages, int entries) {
      for (int i = 0; i < (entries + ops::kPageEntries - 1) / ops::kPageEntries; ++i) {
        ++holders.at(pages[i]);
      }
    };
    for (const Sequence& sequence : sequences) {
      for (int layer = 0; layer < kLayers; ++layer) {
        for (int head = 0; head < kKvHeads; ++head) {
          const std::size_t row = view.row(layer, sequence.slot, head);
          const int longest = device_->rule(sequence.slot).budget + 1;
          hold(&archive_pages[row * view.archive_stride],
               device_->drops_each(layer) ? std::min(device_->length(sequence.slot), longest)
                                          : archive_counts[row]);
          hold(&window_pages[row * view.window_stride],
               std::min(device_->length(sequence.slot), device_->ring(layer, sequence.slot)));
        }
      }
    }
    for (const std::uint32_t page : free_pages) {
      ASSERT_EQ(holders.at(page), 0U) << "page " << page << " is free and held, or free twice";
      holders[page] = 1;  // the free list
      ASSERT_EQ(sharers[page], 0U);
    }
    for (std::size_t page = 0; page < holders.size(); ++page) {
      ASSERT_EQ(holders[page], sharers[page] + 1) << "page " << page;
    }
  }

 protected:
  CacheConfig config_;
  CacheShape shape_;
  std::unique_ptr<Cache> host_;
  std::unique_ptr<DeviceCache> device_;
  std::optional<Stream> stream_;
  std::size_t width_ = 0;
  DeviceBuffer<float2> angles_;
  std::vector<std::byte> page_;
};

}  // namespace winnow::kvcache::cuda::testing
