// Rotary embedding of all, some or none of a head's channels while tokens are appended.
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "base/cuda/on_device.h"
#include "base/random.h"
#include "kvcache/cuda/append/append.h"
#include "ops/cuda/pages/page_address.cuh"
#include "ops/random_values.h"

namespace winnow::kvcache::cuda {
namespace {

using winnow::cuda::DeviceBuffer;

constexpr int kKvHeads = 2;
constexpr int kGroup = 3;
constexpr int kTokens = 5;

std::size_t size(int n) {
  return static_cast<std::size_t>(n);
}

/// (head_dim, rotary): Projection::rotary.
class CudaAppendRotary
    : public winnow::testing::OnDevice<::testing::TestWithParam<std::tuple<int, int>>> {
 protected:
  [[nodiscard]] static int dim() { return std::get<0>(GetParam()); }
  [[nodiscard]] static int rotary() { return std::get<1>(GetParam()); }
  /// Planes that turn.
  [[nodiscard]] static int half() { return (rotary() < 0 ? dim() : rotary()) / 2; }
  [[nodiscard]] static int width() { return (kGroup + 2) * kKvHeads * dim(); }

  void SetUp() override {
    OnDevice::SetUp();
    if (IsSkipped()) {
      return;
    }
    config_.rule = RuleKind::dense;
    config_.format = ops::EntryFormat::bf16;
    config_.max_bytes = std::size_t{4} << 20;
    cache_ = std::make_unique<DeviceCache>(config_, CacheShape{1, kKvHeads, dim(), kGroup});
    stream_.emplace();
    slot_ = cache_->open({kTokens, kTokens}, stream_->get());
    products_ = ops::testing::normal(size(kTokens * width()), 1);
    for (float& x : products_) {
      x = to_float(to_bf16(x));
    }
    // Not only angles: planes also grow, as YaRN's do.
    Random random(2);
    for (int i = 0; i < kTokens * half(); ++i) {
      const double angle = 6.0 * random.uniform();
      host_angles_.push_back(
          {static_cast<float>(1.3 * std::cos(angle)), static_cast<float>(1.3 * std::sin(angle))});
    }
    angles_ = DeviceBuffer<float2>(std::span<const float2>(host_angles_));
  }

  [[nodiscard]] Projection projection(int first_token) const {
    Projection result;
    result.kv_heads = kKvHeads;
    result.group = kGroup;
    result.rotary = rotary();
    result.angles = angles_.data() + first_token * half();
    return result;
  }

  /// Head `column` of a token, turned by definition.
  [[nodiscard]] std::vector<double> turned(int token, int column) const {
    const auto* from = products_.data() + size(token * width() + column * dim());
    std::vector<double> x(from, from + dim());
    for (int i = 0; i < half(); ++i) {
      const float2 angle = host_angles_[size(token * half() + i)];
      const double a = x[size(i)];
      const double b = x[size(i + half())];
      x[size(i)] = a * double{angle.x} - b * double{angle.y};
      x[size(i + half())] = b * double{angle.x} + a * double{angle.y};
    }
    return x;
  }

  /// Queries of all tokens, [tokens, heads * head_dim].
  void expect_queries(const std::vector<float>& queries, double tolerance) const {
    for (int token = 0; token < kTokens; ++token) {
      for (int head = 0; head < kKvHeads * kGroup; ++head) {
        const auto expected = turned(token, head);
        for (int d = 0; d < dim(); ++d) {
          ASSERT_NEAR(queries[size((token * kKvHeads * kGroup + head) * dim() + d)],
                      expected[size(d)], tolerance * (1.0 + std::abs(expected[size(d)])))
              << "token " << token << " head " << head << " channel " << d;
        }
      }
    }
  }

  /// Keys are turned, values are not.
  void expect_entries() const {
    const CacheView& view = cache_->view();
    const ops::cuda::PageAddress address{dim(), 16};
    for (int head = 0; head < kKvHeads; ++head) {
      std::uint32_t number = 0;
      winnow::cuda::check(
          cudaMemcpy(&number, view.archive_pages + view.row(0, slot_, head) * view.archive_stride,
                     sizeof(number), cudaMemcpyDeviceToHost),
          "read a table");
      std::vector<std::byte> page(view.page_bytes);
      winnow::cuda::check(cudaMemcpy(page.data(), view.pool + number * view.page_bytes, page.size(),
                                     cudaMemcpyDeviceToHost),
                          "read a page");
      const auto number_at = [&](int offset) {
        return to_float(*reinterpret_cast<const bf16*>(page.data() + offset));
      };
      for (int token = 0; token < kTokens; ++token) {
        const auto key = turned(token, kKvHeads * kGroup + head);
        const float* value =
            products_.data() + size(token * width() + (kKvHeads * (kGroup + 1) + head) * dim());
        for (int d = 0; d < dim(); ++d) {
          ASSERT_NEAR(number_at(address.key(token, d)), key[size(d)],
                      4e-3 * (0.01 + std::abs(key[size(d)])));
          ASSERT_EQ(number_at(address.value(token, d)), value[d]);
        }
      }
    }
  }

  CacheConfig config_;
  std::unique_ptr<DeviceCache> cache_;
  std::optional<winnow::cuda::Stream> stream_;
  int slot_ = 0;
  std::vector<float> products_;  // [tokens, width]
  std::vector<float2> host_angles_;
  DeviceBuffer<float2> angles_;
};
INSTANTIATE_TEST_SUITE_P(Shapes, CudaAppendRotary,
                         ::testing::Values(std::tuple(16, -1), std::tuple(16, 4),
                                           std::tuple(24, 10), std::tuple(64, -1),
                                           std::tuple(64, 16), std::tuple(64, 0),
                                           std::tuple(96, 72), std::tuple(128, 128),
                                           std::tuple(256, 64), std::tuple(256, 200),
                                           std::tuple(256, -1), std::tuple(256, 0)),
                         [](const auto& info) {
                           const int rotary = std::get<1>(info.param);
                           return "D" + std::to_string(std::get<0>(info.param)) + "_" +
                                  (rotary < 0 ? "all" : std::to_string(rotary));
                         });

TEST_P(CudaAppendRotary, OneTokenAtATime) {
  const DeviceBuffer<std::int32_t> slots{std::vector<std::int32_t>{slot_}};
  const DeviceBuffer<float> qkv{std::span<const float>(products_)};
  const std::size_t row = size(kKvHeads * kGroup * dim());
  DeviceBuffer<float> queries(size(kTokens) * row);
  for (int token = 0; token < kTokens; ++token) {
    append(*cache_, projection(token),
           DecodeAppend{0, 1, slots.data(), qkv.data() + size(token * width()),
                        queries.data() + size(token) * row, nullptr},
           stream_->get());
    advance(*cache_, slot_, 1, stream_->get());
  }
  stream_->synchronize();
  std::vector<float> read(queries.size());
  queries.read(read);
  expect_queries(read, 1e-6);
  expect_entries();
}

TEST_P(CudaAppendRotary, Chunk) {
  std::vector<bf16> rounded;
  for (const float x : products_) {
    rounded.push_back(to_bf16(x));
  }
  const DeviceBuffer<bf16> qkv{std::span<const bf16>(rounded)};
  DeviceBuffer<bf16> queries(size(kTokens * kKvHeads * kGroup * dim()));
  const Band band(*cache_, kTokens);
  append(*cache_, projection(0), PrefillAppend{0, slot_, 0, kTokens, {qkv.data()}, queries.data()},
         band, stream_->get());
  stream_->synchronize();
  std::vector<bf16> read(queries.size());
  queries.read(read);
  std::vector<float> wide;
  for (const bf16 x : read) {
    wide.push_back(to_float(x));
  }
  expect_queries(wide, 4e-3);
  expect_entries();
}

}  // namespace
}  // namespace winnow::kvcache::cuda
