// The device's cache beside the host's, one head after another, bit for bit.
#include "kvcache/cuda/append.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "kvcache/head_cache.h"
#include "kvcache/sequence_cache.h"
#include "ops/cuda/page_address.cuh"

namespace winnow::kvcache::cuda {
namespace {

using winnow::cuda::DeviceBuffer;
using winnow::cuda::Stream;

constexpr int kLayers = 2;
constexpr int kKvHeads = 3;
constexpr int kChannel = 5;  // decisions are read from

struct Case {
  RuleKind rule;
  DType format;
  int head_dim;
  int group;
  int window;
  int shift;
};

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  return std::string(rule_name(c.rule)) + "_" + std::string(dtype_name(c.format)) + "_D" +
         std::to_string(c.head_dim) + "_G" + std::to_string(c.group) + "_w" +
         std::to_string(c.window) + "_shift" + std::to_string(c.shift);
}

/// The same tokens through both caches. Angles are zero, so that nothing is turned, and the
/// decision is the sign of a channel, which is then cleared.
class CudaAppend : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (winnow::cuda::device_count() == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
    const Case& c = GetParam();
    stream_.emplace();
    config_.rule = c.rule;
    config_.format = c.format;
    config_.window = c.window;
    config_.shift = c.shift;
    config_.max_bytes = std::size_t{64} << 20;
    shape_ = {kLayers, kKvHeads, c.head_dim, c.group};
    host_ = std::make_unique<Cache>(config_, shape_);
    device_ = std::make_unique<DeviceCache>(config_, shape_);
    width_ = static_cast<std::size_t>((c.group + 2) * kKvHeads * c.head_dim);
  }

  struct Sequence {
    SequenceCache host;
    int slot;
    std::uint64_t seed;
  };

  Sequence open(std::uint64_t seed) {
    return {SequenceCache(*host_, {}), device_->open(700, stream_->get()), seed};
  }

  // q, k and v of the token at `position`; keys and values large enough to have a scale.
  [[nodiscard]] std::vector<float> products(const Sequence& sequence, int layer,
                                            int position) const {
    Random random(sequence.seed,
                  static_cast<std::uint64_t>(layer) << 32 | static_cast<std::uint64_t>(position));
    std::vector<float> x(width_);
    for (float& value : x) {
      value = to_float(to_bf16(static_cast<float>(random.normal())));  // prefill reads bf16
    }
    return x;
  }

  void append_on_host(Sequence& sequence, int layer, const std::vector<float>& x) {
    const auto dim = static_cast<std::size_t>(shape_.head_dim);
    const auto group = static_cast<std::size_t>(shape_.group);
    for (int head = 0; head < kKvHeads; ++head) {
      const auto h = static_cast<std::size_t>(head);
      const auto column = [&](std::size_t index) { return std::span(x).subspan(index * dim, dim); };
      const Token token{column(kKvHeads * group + h), column(kKvHeads * (group + 1) + h),
                        column(h * group)[kChannel] > 0.3F, 1.0F};
      sequence.host.head(layer, head).append(sequence.host.rule(), token);
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
    projection.decision.kind = DecisionSource::Kind::channel;
    projection.decision.scale = 10.0F;
    projection.decision.offset = 3.0F;
    projection.decision.channel = kChannel;
    return projection;
  }

  // One token of each sequence.
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
      append(*device_, how,
             DecodeAppend{layer, batch, device_slots.data(), qkv.data(), queries.data()},
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

  void prefill(Sequence& sequence, int tokens) {
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
             PrefillAppend{layer, sequence.slot, length, tokens, qkv.data(), queries.data()}, band,
             stream_->get());
      stream_->synchronize();
      std::vector<std::int32_t> seen(static_cast<std::size_t>(kKvHeads * tokens));
      band.seen.read(seen);
      for (int t = 0; t < tokens; ++t) {
        append_on_host(sequence, layer, rows[static_cast<std::size_t>(t)]);
        for (int head = 0; head < kKvHeads && config_.rule != RuleKind::dense; ++head) {
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
    for (std::size_t i = 0; i < got.size(); ++i) {
      const bool cleared = i / dim % group == 0 && i % dim == kChannel;
      ASSERT_EQ(got[i], cleared ? 0.0F : products[i]) << i;
    }
  }

  // All entries of a sequence in both caches.
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
        if (view.ring > 0) {
          expect_same(host.window(), &window_pages[row * view.window_stride]);
        }
      }
    }
  }

  void expect_same(const EntryList& host, const std::uint32_t* pages) {
    const auto& layout = device_->layout();
    const int bytes = static_cast<int>(layout.host().element_bytes());
    const ops::cuda::PageAddress address{layout.head_dim(), bytes};
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
        same(address.key(entry, d), bytes);
        same(address.value(entry, d), bytes);
      }
      if (address.scaled()) {
        same(address.key_scale(entry), 2);
        same(address.value_scale(entry), 2);
      }
    }
  }

  template <class T>
  static std::vector<T> read(const T* from, std::size_t count) {
    std::vector<T> result(count);
    winnow::cuda::check(cudaMemcpy(result.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost),
                        "read");
    return result;
  }

  CacheConfig config_;
  CacheShape shape_;
  std::unique_ptr<Cache> host_;
  std::unique_ptr<DeviceCache> device_;
  std::optional<Stream> stream_;
  std::size_t width_ = 0;
  DeviceBuffer<float2> angles_;
  std::vector<std::byte> page_;
};

INSTANTIATE_TEST_SUITE_P(Cases, CudaAppend,
                         ::testing::Values(Case{RuleKind::dms, DType::f8e4m3, 64, 4, 37, 1},
                                           Case{RuleKind::dms, DType::f8e4m3, 128, 4, 256, 1},
                                           Case{RuleKind::dms, DType::i8, 80, 3, 16, 0},
                                           Case{RuleKind::dms, DType::bf16, 96, 8, 0, 1},
                                           Case{RuleKind::dms, DType::bf16, 64, 1, 1, 0},
                                           Case{RuleKind::dense, DType::f8e4m3, 64, 4, 0, 1},
                                           Case{RuleKind::dense, DType::bf16, 128, 2, 0, 1}),
                         name_of);

TEST_P(CudaAppend, HoldsWhatTheHostHolds) {
  std::vector<Sequence> sequences;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    sequences.push_back(open(seed));
  }
  // Chunks and single tokens in turn; sequences of unlike length; slots in another order.
  prefill(sequences[0], 33);
  prefill(sequences[2], 300);
  prefill(sequences[3], 1);
  std::vector<Sequence*> some{&sequences[3], &sequences[0], &sequences[1]};
  for (int t = 0; t < 20; ++t) {
    decode(some);
  }
  prefill(sequences[2], 17);
  prefill(sequences[0], 170);
  prefill(sequences[1], 5);
  std::vector<Sequence*> all{&sequences[2], &sequences[3], &sequences[0], &sequences[1]};
  for (int t = 0; t < 40; ++t) {
    decode(all);
  }
  for (const Sequence& sequence : sequences) {
    expect_same(sequence);
  }
}

TEST_P(CudaAppend, PagesComeBack) {
  Sequence first = open(1);
  prefill(first, 100);
  Sequence second = open(2);
  prefill(second, 50);
  const std::size_t all = device_->capacity();
  const int copy = device_->fork(first.slot, stream_->get());
  EXPECT_FALSE(device_->has_pages(all, stream_->get()));
  std::vector<Sequence*> one{&first};
  decode(one);  // the copy stays as it is
  EXPECT_EQ(device_->length(copy), 100);
  device_->close(first.slot, stream_->get());
  device_->close(second.slot, stream_->get());
  Sequence replayed = open(1);
  for (int layer = 0; layer < kLayers; ++layer) {
    for (int position = 0; position < 100; ++position) {
      append_on_host(replayed, layer, products(replayed, layer, position));
    }
  }
  const int unused = replayed.slot;
  replayed.slot = copy;
  expect_same(replayed);
  device_->close(copy, stream_->get());
  device_->close(unused, stream_->get());
  EXPECT_TRUE(device_->has_pages(all, stream_->get()));
  EXPECT_EQ(device_->used_page_bytes(stream_->get()), 0U);
}

TEST(CudaCache, RefusesRulesWithoutKernels) {
  CacheConfig config;
  config.rule = RuleKind::h2o;
  config.cr = 2.0;
  EXPECT_THROW(DeviceCache(config, {1, 1, 64, 1}), Error);
  config = {};
  config.rule = RuleKind::dms;
  config.window = 16;
  config.shift = 17;
  EXPECT_THROW(DeviceCache(config, {1, 1, 64, 1}), Error);
}

}  // namespace
}  // namespace winnow::kvcache::cuda
