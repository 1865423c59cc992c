// Splitting and rotating heads on the device, against the CPU's norm and RoPE in sequence.
#include "ops/cuda/training/training_heads.h"

#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "ops/cuda/rope.h"
#include "ops/cuda/training/training_ops_testing.h"
#include "ops/norm.h"
#include "ops/rope.h"

namespace winnow::ops::cuda::testing {
namespace {

constexpr std::size_t kRows = 21;
constexpr std::size_t kHeads = 4;
constexpr std::size_t kKvHeads = 2;
constexpr std::size_t kAll = kHeads + 2 * kKvHeads;
constexpr std::size_t kStride = 8;
constexpr float kEps = 1e-5F;

using Floats = std::vector<float>;

/// Columns [begin, begin + count) heads of rows of kAll heads.
Floats columns(const Floats& from, std::size_t dim, std::size_t begin, std::size_t count) {
  Floats result;
  for (std::size_t row = 0; row < kRows; ++row) {
    const auto first = from.begin() + static_cast<std::ptrdiff_t>((row * kAll + begin) * dim);
    result.insert(result.end(), first, first + static_cast<std::ptrdiff_t>(count * dim));
  }
  return result;
}

/// How heads are normed and rotated.
struct Kind {
  bool interleaved = false;
  bool after_rope = false;  // norms
  bool own = false;         // weights of each head
  bool centers = false;
  bool weights = true;  // else they are 1
  float offset = 0.0F;
};
constexpr Kind kKinds[] = {{},
                           {.offset = 1.0F},
                           {.interleaved = true},
                           {.after_rope = true},
                           {.interleaved = true, .own = true, .centers = true},
                           {.after_rope = true, .weights = false}};

/// A channel of every `every`-th head whose value raw has, and which is 0 in attention;
/// `dread` is the gradient of its value.
struct Channel {
  std::size_t channel;
  std::size_t every;
  const Floats* dread;
};

/// Heads of one kind, on the CPU: forward and, from gradients, back.
struct HostHeads {
  Floats raw;        // before the norm
  Floats norm;       // its weight
  Floats out = {};   // what attention takes
  Floats draw = {};  // gradient of raw
  Floats dnorm = {};
  Floats read = {};  // the channel behind the norm, of every head that has one
};

class CudaHeads : public CudaTrainingOps {
 protected:
  void norm(const Kind& kind, Floats& x, const Floats& weight, std::size_t dim) {
    if (kind.centers) {
      layer_norm(matrix(x, dim), matrix(x, dim), weight, {}, kEps, kind.offset);
    } else {
      rms_norm(matrix(x, dim), matrix(x, dim), weight, kEps, kind.offset);
    }
  }
  /// g becomes the gradient of x.
  void norm_backward(const Kind& kind, Floats& g, Floats& x, HostHeads& h, std::size_t dim) {
    Floats dx(x.size(), 0.0F);
    if (kind.centers) {
      layer_norm_backward(workspace_, {matrix(dx, dim), h.dnorm, {}}, matrix(g, dim),
                          matrix(x, dim), h.norm, kEps, kind.offset);
    } else {
      rms_norm_backward(workspace_, matrix(dx, dim), h.dnorm, matrix(g, dim), matrix(x, dim),
                        h.norm, kEps, kind.offset);
    }
    g = dx;
  }

  void compute(const Kind& kind, HostHeads& h, std::size_t dim,
               const std::optional<Channel>& carried, const Floats& dout,
               const RopeAngles& angles) {
    const std::size_t heads = h.raw.size() / kRows / dim;
    const auto for_channels = [&](Floats& x, const auto& body) {
      for (std::size_t row = 0; carried && row < kRows; ++row) {
        for (std::size_t head = 0; head < heads; head += carried->every) {
          body(x[(row * heads + head) * dim + carried->channel],
               row * (heads / carried->every) + head / carried->every);
        }
      }
    };
    const auto clear = [](float& x, std::size_t) { x = 0.0F; };
    h.out = h.raw;
    if (!kind.after_rope) {
      norm(kind, h.out, h.norm, dim);
    }
    h.read.resize(carried ? kRows * heads / carried->every : 0);
    for_channels(h.out, [&](float& x, std::size_t i) { h.read[i] = std::exchange(x, 0.0F); });
    rope(matrix(h.out, heads * dim), static_cast<int>(dim), angles);
    Floats rotated = h.out;
    if (kind.after_rope) {
      norm(kind, h.out, h.norm, dim);
    }
    for_channels(h.out, clear);

    h.draw = dout;
    h.dnorm.assign(h.norm.size(), 0.0F);
    for_channels(h.draw, clear);
    if (kind.after_rope) {
      norm_backward(kind, h.draw, rotated, h, dim);
    }
    rope_backward(matrix(h.draw, heads * dim), static_cast<int>(dim), angles);
    for_channels(h.draw, [&](float& x, std::size_t i) { x = (*carried->dread)[i]; });
    if (!kind.after_rope) {
      norm_backward(kind, h.draw, h.raw, h, dim);
    }
  }

  void expect_like_the_cpu(const Kind& kind, std::size_t dim);
};

void CudaHeads::expect_like_the_cpu(const Kind& kind, std::size_t dim) {
  const std::size_t channel = dim - 1;
  Floats projected = draw_bf16(kRows * kAll * dim, 1);
  const Floats bias = draw(kAll * dim, 2);
  const Floats probe = draw(kRows * kStride, 3);
  const Floats dread = draw(kRows * kKvHeads, 4);
  Floats raw = projected;
  for (std::size_t i = 0; i < raw.size(); ++i) {
    raw[i] += bias[i % bias.size()];
  }
  const auto weights = [&](std::size_t heads, std::uint64_t seed) {
    const std::size_t count = (kind.own ? heads : 1) * dim;
    return kind.weights ? draw(count, seed) : Floats(count, 1.0F - kind.offset);
  };
  HostHeads queries{.raw = columns(raw, dim, 0, kHeads), .norm = weights(kHeads, 5)};
  HostHeads plain{.raw = columns(raw, dim, kHeads, kKvHeads), .norm = weights(kKvHeads, 6)};
  for (std::size_t row = 0; row < kRows; ++row) {
    for (std::size_t group = 0; group < kKvHeads; ++group) {
      queries.raw[(row * kHeads + 2 * group) * dim + channel] = probe[row * kStride + group];
    }
  }
  std::vector<std::int32_t> positions(kRows);
  std::iota(positions.begin(), positions.end(), 5);
  const Floats frequencies = draw(dim / 2, 7);
  RopeAngles angles;
  angles.compute(frequencies, positions, 1.0F, kind.interleaved);
  const Floats dqueries = draw_bf16(kRows * kHeads * dim, 8);
  const Floats dkeys = draw_bf16(kRows * kKvHeads * dim, 9);
  const Floats dvalues = draw_bf16(kRows * kKvHeads * dim, 10);
  compute(kind, queries, dim, Channel{channel, kHeads / kKvHeads, &dread}, dqueries, angles);
  compute(kind, plain, dim, std::nullopt, dkeys, angles);  // keys have no such channel

  const DeviceBuffer<std::int32_t> positions_device{std::span<const std::int32_t>(positions)};
  const auto frequencies_device = upload(frequencies);
  const DeviceBuffer<float2> angles_device(kRows * dim / 2);
  rope_angles(angles_device.data(), frequencies_device.data(), static_cast<int>(dim / 2),
              positions_device.data(), kRows, nullptr);
  const auto projected_device = upload_bf16(projected);
  const auto bias_device = upload(bias);
  const auto query_norm = upload(queries.norm);
  const auto key_norm = upload(plain.norm);
  const auto probe_device = upload(probe);
  const auto factor = upload(Floats{0.0F});
  TrainingHeads heads{.rows = kRows,
                      .heads = kHeads,
                      .kv_heads = kKvHeads,
                      .head_dim = static_cast<int>(dim),
                      .projected = projected_device.data(),
                      .bias = bias_device.data(),
                      .norms = true,
                      .query_norm = kind.weights ? query_norm.data() : nullptr,
                      .key_norm = kind.weights ? key_norm.data() : nullptr,
                      .own_norms = kind.own,
                      .norm_offset = kind.offset,
                      .centers = kind.centers,
                      .norms_after_rope = kind.after_rope,
                      .eps = kEps,
                      .interleaved = kind.interleaved,
                      .angles = angles_device.data(),
                      .query = {.channel = static_cast<int>(channel),
                                .every = kHeads / kKvHeads,
                                .probe = probe_device.data(),
                                .probes = kKvHeads,
                                .stride = kStride},
                      .key = {},
                      .factor = factor.data(),
                      .clear_after_rope = true};
  const auto q = poisoned<bf16>(kRows * kHeads * dim);
  const auto k = poisoned<bf16>(kRows * kKvHeads * dim);
  const auto v = poisoned<bf16>(kRows * kKvHeads * dim);
  const auto read = poisoned<float>(kRows * kKvHeads);
  split_heads(heads, q.data(), k.data(), v.data(), read.data(), nullptr, nullptr);
  expect_close(download(q), queries.out, kRounded, "queries");
  expect_close(download(k), plain.out, kRounded, "keys");
  expect_close(download(v), columns(raw, dim, kHeads + kKvHeads, kKvHeads), kRounded, "values");
  expect_close(download(read), queries.read, kExact, "what is read");

  const auto dq = upload_bf16(dqueries);
  const auto dk = upload_bf16(dkeys);
  const auto dv = upload_bf16(dvalues);
  const auto dread_device = upload(dread);
  const auto dprojected = poisoned<bf16>(projected.size());
  const auto dprobe = poisoned<bf16>(kRows * kStride);
  const auto dquery_norm = upload(Floats(queries.norm.size(), 0.0F));
  const auto dkey_norm = upload(Floats(plain.norm.size(), 0.0F));
  split_heads_backward(heads,
                       {.queries = dq.data(),
                        .keys = dk.data(),
                        .values = dv.data(),
                        .query_read = dread_device.data(),
                        .key_read = nullptr,
                        .projected = dprojected.data(),
                        .query_probe = dprobe.data(),
                        .key_probe = nullptr,
                        .query_norm = kind.weights ? dquery_norm.data() : nullptr,
                        .key_norm = kind.weights ? dkey_norm.data() : nullptr},
                       nullptr);
  Floats expected_probe(kRows * kStride, 0.0F);
  for (std::size_t row = 0; row < kRows; ++row) {
    for (std::size_t group = 0; group < kKvHeads; ++group) {
      float& own = queries.draw[(row * kHeads + 2 * group) * dim + channel];
      expected_probe[row * kStride + group] = std::exchange(own, 0.0F);
    }
  }
  const Floats all = download(dprojected);
  expect_close(columns(all, dim, 0, kHeads), queries.draw, kRounded, "dqueries");
  expect_close(columns(all, dim, kHeads, kKvHeads), plain.draw, kRounded, "dkeys");
  expect_close(columns(all, dim, kHeads + kKvHeads, kKvHeads), dvalues, kExact, "dvalues");
  expect_close(download(dprobe), expected_probe, kRounded, "dprobe");
  if (kind.weights) {
    expect_close(download(dquery_norm), queries.dnorm, 1e-4, "query norm");
    expect_close(download(dkey_norm), plain.dnorm, 1e-4, "key norm");
  }
}

TEST_F(CudaHeads, AreNormedReadAndTurned) {
  for (std::size_t kind = 0; kind < std::size(kKinds); ++kind) {
    for (const std::size_t dim : {8U, 24U, 64U, 128U}) {
      SCOPED_TRACE(::testing::Message() << "kind " << kind << ", " << dim << " channels");
      expect_like_the_cpu(kKinds[kind], dim);
    }
  }
}

/// The first `rotary` channels of every head of x [rows, heads, dim], rotated by the row's angles.
Floats turned(Floats x, std::size_t dim, std::size_t rotary, std::span<const float2> angles,
              float sign) {
  const std::size_t half = rotary / 2;
  const std::size_t width = x.size() / kRows;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (const std::size_t plane = i % dim; plane < half) {
      const float2 angle = angles[i / width * half + plane];
      const float a = x[i];
      const float b = x[i + half];
      x[i] = a * angle.x - b * sign * angle.y;
      x[i + half] = b * angle.x + a * sign * angle.y;
    }
  }
  return x;
}

// Against heads that are not rotated at all.
TEST_F(CudaHeads, TurnSomeOfTheirChannels) {
  for (const auto& [dim, rotary] : {std::pair(8, 4), {24, 10}, {64, 16}, {128, 120}, {256, 64}}) {
    SCOPED_TRACE(dim);
    const auto width = static_cast<std::size_t>(dim);
    const auto turning = static_cast<std::size_t>(rotary);
    const Floats projected = draw_bf16(kRows * kAll * width, 1);
    std::vector<float2> angles;
    const Floats drawn = draw(kRows * turning, 2);
    for (std::size_t i = 0; i < kRows * turning / 2; ++i) {
      angles.push_back({drawn[2 * i], drawn[2 * i + 1]});
    }
    const Floats dqueries = draw_bf16(kRows * kHeads * width, 3);
    const Floats dkeys = draw_bf16(kRows * kKvHeads * width, 4);
    const Floats dvalues = draw_bf16(kRows * kKvHeads * width, 5);
    const auto angles_device = DeviceBuffer<float2>(std::span<const float2>(angles));
    const auto on_device = upload_bf16(projected);
    const auto query_norm = upload(draw(width, 6));
    TrainingHeads heads{.rows = kRows,
                        .heads = kHeads,
                        .kv_heads = kKvHeads,
                        .head_dim = dim,
                        .projected = on_device.data(),
                        .norms = true,
                        .query_norm = query_norm.data(),
                        .eps = kEps,
                        .rotary = 0,
                        .angles = angles_device.data(),
                        .query = {},
                        .key = {}};
    const auto split = [&] {
      const auto q = poisoned<bf16>(dqueries.size());
      const auto k = poisoned<bf16>(dkeys.size());
      const auto v = poisoned<bf16>(dvalues.size());
      split_heads(heads, q.data(), k.data(), v.data(), nullptr, nullptr, nullptr);
      return std::tuple(download(q), download(k), download(v));
    };
    const auto back = [&](const Floats& dq, const Floats& dk) {
      const auto dprojected = poisoned<bf16>(projected.size());
      const auto of_queries = upload_bf16(dq);
      const auto of_keys = upload_bf16(dk);
      const auto of_values = upload_bf16(dvalues);
      split_heads_backward(heads,
                           {.queries = of_queries.data(),
                            .keys = of_keys.data(),
                            .values = of_values.data(),
                            .projected = dprojected.data()},
                           nullptr);
      return download(dprojected);
    };
    const auto [q, k, v] = split();
    const Floats expected = back(turned(dqueries, width, turning, angles, -1.0F),
                                 turned(dkeys, width, turning, angles, -1.0F));
    heads.rotary = rotary;
    const auto [turned_q, turned_k, same_v] = split();
    expect_close(turned_q, turned(q, width, turning, angles, 1.0F), 2 * kRounded, "queries");
    expect_close(turned_k, turned(k, width, turning, angles, 1.0F), 2 * kRounded, "keys");
    EXPECT_EQ(same_v, v);
    expect_close(back(dqueries, dkeys), expected, 2 * kRounded, "gradient");
  }
}

}  // namespace
}  // namespace winnow::ops::cuda::testing
