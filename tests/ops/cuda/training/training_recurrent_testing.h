// Recurrent layers of packed documents, for tests of their training on a device.
#pragma once

#include <array>
#include <vector>

#include "ops/cuda/recurrent/recurrent_rows.h"
#include "ops/cuda/training/training_ops_testing.h"
#include "ops/cuda/training/training_recurrent.h"
#include "ops/norm.h"

namespace winnow::ops::cuda::testing {

using Values = std::vector<float>;

inline std::size_t count_of(int count) {
  return static_cast<std::size_t>(count);
}

template <class T>
Matrix<T> columns(Matrix<T> x, int first, int count) {
  return {x.data + first, x.rows, count_of(count), x.stride};
}

/// Documents, heads and weights.
struct RecurrentWorld {
  DeltaRuleShape heads;
  bool joined;
  int taps;
  int rows;
  std::vector<int> documents;  // where they begin
  float eps = 1e-5F;
  Values tap_values, log_decay, decay_bias, norm;

  RecurrentWorld(const DeltaRuleShape& shape, bool together, int tap_count, int tokens,
                 std::vector<int> begins)
      : heads(shape),
        joined(together),
        taps(tap_count),
        rows(tokens),
        documents(std::move(begins)),
        tap_values(draw(count_of(tap_count * channels()), 1, 0.5)),
        log_decay(draw(count_of(shape.value_heads), 2, 0.5)),
        decay_bias(draw(count_of(shape.value_heads), 3)),
        norm(draw(count_of(shape.value_dim), 4)) {}

  [[nodiscard]] int channels() const { return channels_of(heads); }
  [[nodiscard]] int values() const { return heads.value_width(); }
  [[nodiscard]] int logit_stride() const { return (2 * heads.value_heads + 7) / 8 * 8; }
  [[nodiscard]] std::size_t count(int each) const { return count_of(rows) * count_of(each); }

  [[nodiscard]] std::vector<std::int32_t> first_key() const {
    std::vector<std::int32_t> firsts(count_of(rows));
    for_each_document([&](std::size_t first, std::size_t last) {
      std::fill(firsts.begin() + static_cast<std::ptrdiff_t>(first),
                firsts.begin() + static_cast<std::ptrdiff_t>(last),
                static_cast<std::int32_t>(first));
    });
    return firsts;
  }

  /// body(first, last): of each document.
  template <class Body>
  void for_each_document(const Body& body) const {
    for (std::size_t i = 0; i < documents.size(); ++i) {
      body(count_of(documents[i]), count_of(i + 1 < documents.size() ? documents[i + 1] : rows));
    }
  }
};

/// Projections as contiguous parts, as on the CPU, and the real positions of their columns.
class RecurrentLayout {
 public:
  /// Widths of the parts.
  RecurrentLayout(const RecurrentWorld& world, const std::vector<int>& parts) {
    const int groups = world.joined ? world.heads.key_heads : 1;
    int all = 0;
    for (const int part : parts) {
      all += part;
    }
    int before = 0;  // within a group
    for (const int part : parts) {
      const int own = part / groups;
      for (int c = 0; c < part; ++c) {
        columns_.push_back(count_of(c / own * (all / groups) + before + c % own));
      }
      before += own;
    }
  }

  /// [rows, stride] as [rows, parts].
  [[nodiscard]] Values apart(const Values& x, int stride) const {
    Values result;
    for (std::size_t first = 0; first < x.size(); first += count_of(stride)) {
      for (const std::size_t column : columns_) {
        result.push_back(x[first + column]);
      }
    }
    return result;
  }

 private:
  std::vector<std::size_t> columns_;
};

inline RecurrentLayout projections_of(const RecurrentWorld& world) {
  const int keys = world.heads.key_width();
  return {world, {keys, keys, world.values(), world.values()}};
}
inline RecurrentLayout logits_of(const RecurrentWorld& world) {
  return {world, {world.heads.value_heads, world.heads.value_heads}};
}

/// The layer in device memory.
struct RecurrentOnDevice {
  DeviceBuffer<std::int32_t> first_key;
  DeviceBuffer<bf16> projected;
  DeviceBuffer<float> logits, taps, log_decay, decay_bias, norm;
  TrainingRecurrent layer;

  RecurrentOnDevice(const RecurrentWorld& world, const Values& projections, const Values& gates)
      : first_key(std::span<const std::int32_t>(world.first_key())),
        projected(upload_bf16(projections)),
        logits(upload(gates)),
        taps(upload(world.tap_values)),
        log_decay(upload(world.log_decay)),
        decay_bias(upload(world.decay_bias)),
        norm(upload(world.norm)),
        layer{.heads = world.heads,
              .joined = world.joined,
              .rows = world.rows,
              .first_key = first_key.data(),
              .projected = projected.data(),
              .logits = logits.data(),
              .logit_stride = world.logit_stride(),
              .taps = taps.data(),
              .tap_count = world.taps,
              .log_decay = log_decay.data(),
              .decay_bias = decay_bias.data(),
              .norm = norm.data(),
              .eps = world.eps} {}
};

inline DeviceBuffer<float> zeros(std::size_t count) {
  DeviceBuffer<float> buffer(count);
  buffer.fill(0);
  return buffer;
}

/// Heads of several groups and widths, with documents that end within chunks, at their ends and
/// after several of them; the last has more work than a grid processes at once, and 66 chunks.
inline std::vector<RecurrentWorld> recurrent_worlds() {
  return {{{1, 2, 8, 12}, true, 4, 160, {0, 3, 50, 51, 120}},
          {{2, 6, 36, 40}, true, 2, 333, {0, 64, 65, 128, 300, 301}},
          {{2, 4, 64, 64}, false, 4, 256, {0, 200}},
          {{1, 1, 132, 72}, false, 5, 70, {0, 69}},
          {{2, 8, 16, 16}, true, 4, 4200, {0, 9}}};
}

}  // namespace winnow::ops::cuda::testing
