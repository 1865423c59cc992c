// Norms of heads, and rotary embedding of all, some or none of their channels, while tokens are
// appended.
#include <gtest/gtest.h>

#include <cmath>

#include "base/cuda/on_device.h"
#include "base/random.h"
#include "kvcache/cuda/append/append.h"
#include "ops/cuda/pages/page_address.cuh"
#include "ops/random_values.h"

namespace winnow::kvcache::cuda {
namespace {

using winnow::cuda::DeviceBuffer;

constexpr int kTurnedHeads = 2;
constexpr int kGroup = 3;
constexpr int kTokens = 5;

std::size_t size(int n) {
  return static_cast<std::size_t>(n);
}

constexpr double kEps = 1e-3;

/// The fields of a Projection that are tested.
struct Heads {
  enum class Norms : std::uint8_t { none, before, behind };
  int dim;
  int rotary;
  bool interleaved = false;
  Norms norms = Norms::none;
  bool own = false;
  bool center = false;
};

class CudaAppendRotary : public winnow::testing::OnDevice<::testing::TestWithParam<Heads>> {
 protected:
  using Norms = Heads::Norms;
  [[nodiscard]] static int dim() { return GetParam().dim; }
  [[nodiscard]] static int rotary() { return GetParam().rotary; }
  /// The number of planes that RoPE rotates.
  [[nodiscard]] static int half() { return (rotary() < 0 ? dim() : rotary()) / 2; }
  [[nodiscard]] static int width() { return (kGroup + 2) * kTurnedHeads * dim(); }

  void SetUp() override {
    OnDevice::SetUp();
    if (IsSkipped()) {
      return;
    }
    config_.rule = RuleKind::dense;
    config_.format = ops::EntryFormat::bf16;
    config_.max_bytes = std::size_t{4} << 20;
    cache_ = std::make_unique<DeviceCache>(config_, CacheShape{1, kTurnedHeads, dim(), kGroup});
    stream_.emplace();
    slot_ = cache_->open({kTokens, kTokens}, stream_->get());
    products_ = ops::testing::normal(size(kTokens * width()), 1);
    for (float& x : products_) {
      x = to_float(to_bf16(x));
    }
    // Not only angles: planes are also scaled, as in YaRN.
    Random random(2);
    for (int i = 0; i < kTokens * half(); ++i) {
      const double angle = 6.0 * random.uniform();
      host_angles_.push_back(
          {static_cast<float>(1.3 * std::cos(angle)), static_cast<float>(1.3 * std::sin(angle))});
    }
    angles_ = DeviceBuffer<float2>(std::span<const float2>(host_angles_));
    norms_ = ops::testing::normal(size((kGroup + 1) * kTurnedHeads * dim()), 3);
    device_norms_ = DeviceBuffer<float>(std::span<const float>(norms_));
  }

  [[nodiscard]] Projection projection(int first_token) const {
    Projection result;
    result.kv_heads = kTurnedHeads;
    result.group = kGroup;
    result.rotary = rotary();
    result.interleaved = GetParam().interleaved;
    if (GetParam().norms != Norms::none) {
      result.query_norm = device_norms_.data();
      result.key_norm = device_norms_.data() + kTurnedHeads * kGroup * dim();
      result.eps = static_cast<float>(kEps);
      result.own_norms = GetParam().own;
      result.norms_center = GetParam().center;
      result.norms_after_rope = GetParam().norms == Norms::behind;
    }
    result.angles = angles_.data() + first_token * half();
    return result;
  }

  /// Head `column` of a token's queries or keys, normed and rotated by definition.
  [[nodiscard]] std::vector<double> turned(int token, int column) const {
    const auto* from = products_.data() + size(token * width() + column * dim());
    std::vector<double> x(from, from + dim());
    if (GetParam().norms == Norms::before) {
      norm(x, column);
    }
    for (int i = 0; i < half(); ++i) {
      const float2 angle = host_angles_[size(token * half() + i)];
      double& first = x[size(GetParam().interleaved ? 2 * i : i)];
      double& second = x[size(GetParam().interleaved ? 2 * i + 1 : i + half())];
      const double a = first;
      const double b = second;
      first = a * double{angle.x} - b * double{angle.y};
      second = b * double{angle.x} + a * double{angle.y};
    }
    if (GetParam().norms == Norms::behind) {
      norm(x, column);
    }
    return x;
  }

  void norm(std::vector<double>& x, int column) const {
    double mean = 0.0;
    for (const double value : x) {
      mean += GetParam().center ? value / dim() : 0.0;
    }
    double square = 0.0;
    for (double& value : x) {
      value -= mean;
      square += value * value / dim();
    }
    const int first_key = kTurnedHeads * kGroup;
    const int part = GetParam().own ? column : column < first_key ? 0 : first_key;
    for (int d = 0; d < dim(); ++d) {
      x[size(d)] *= double{norms_[size(part * dim() + d)]} / std::sqrt(square + kEps);
    }
  }

  /// Checks the queries of all tokens, [tokens, heads * head_dim].
  void expect_queries(const std::vector<float>& queries, double tolerance) const {
    for (int token = 0; token < kTokens; ++token) {
      for (int head = 0; head < kTurnedHeads * kGroup; ++head) {
        const auto expected = turned(token, head);
        for (int d = 0; d < dim(); ++d) {
          ASSERT_NEAR(queries[size((token * kTurnedHeads * kGroup + head) * dim() + d)],
                      expected[size(d)], tolerance * (1.0 + std::abs(expected[size(d)])))
              << "token " << token << " head " << head << " channel " << d;
        }
      }
    }
  }

  /// Checks that keys are rotated and values are not.
  void expect_entries() const {
    const CacheView& view = cache_->view();
    const ops::cuda::PageAddress address{dim(), 16};
    for (int head = 0; head < kTurnedHeads; ++head) {
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
        const auto key = turned(token, kTurnedHeads * kGroup + head);
        const float* value =
            products_.data() + size(token * width() + (kTurnedHeads * (kGroup + 1) + head) * dim());
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
  std::vector<float> norms_;  // [heads of queries, then of keys, dim]
  DeviceBuffer<float> device_norms_;
};
using Norms = Heads::Norms;
INSTANTIATE_TEST_SUITE_P(
    Shapes, CudaAppendRotary,
    ::testing::Values(Heads{16, -1}, Heads{16, 4}, Heads{24, 10}, Heads{64, -1}, Heads{64, 16},
                      Heads{64, 0}, Heads{96, 72}, Heads{128, 128}, Heads{256, 64}, Heads{256, 200},
                      Heads{256, -1}, Heads{256, 0}, Heads{8, -1, true}, Heads{24, 10, true},
                      Heads{64, -1, true}, Heads{80, 32, true}, Heads{96, 72, true},
                      Heads{128, -1, true}, Heads{256, 200, true},
                      Heads{64, -1, false, Norms::before}, Heads{64, -1, false, Norms::behind},
                      Heads{80, 32, true, Norms::behind}, Heads{128, -1, true, Norms::behind, true},
                      Heads{64, -1, true, Norms::before, true, true},
                      Heads{24, -1, false, Norms::before, false, true},
                      Heads{256, 64, false, Norms::behind, true, true}),
    [](const auto& info) {
      const Heads& heads = info.param;
      const char* norms = heads.norms == Norms::none     ? ""
                          : heads.norms == Norms::before ? "_normed_before"
                                                         : "_normed_behind";
      return "D" + std::to_string(heads.dim) + "_" +
             (heads.rotary < 0 ? "all" : std::to_string(heads.rotary)) +
             (heads.interleaved ? "_pairs" : "") + norms + (heads.own ? "_by_head" : "") +
             (heads.center ? "_centred" : "");
    });

TEST_P(CudaAppendRotary, OneTokenAtATime) {
  const DeviceBuffer<std::int32_t> slots{std::vector<std::int32_t>{slot_}};
  const DeviceBuffer<float> qkv{std::span<const float>(products_)};
  const std::size_t row = size(kTurnedHeads * kGroup * dim());
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
  expect_queries(read, GetParam().norms == Norms::none ? 1e-6 : 1e-5);
  expect_entries();
}

TEST_P(CudaAppendRotary, Chunk) {
  std::vector<bf16> rounded;
  for (const float x : products_) {
    rounded.push_back(to_bf16(x));
  }
  const DeviceBuffer<bf16> qkv{std::span<const bf16>(rounded)};
  DeviceBuffer<bf16> queries(size(kTokens * kTurnedHeads * kGroup * dim()));
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
