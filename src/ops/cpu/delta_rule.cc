#include "ops/delta_rule.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <vector>

#include "base/threads.h"
#include "ops/cpu/delta_columns.h"
#include "ops/cpu/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/delta_rule.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#ifndef WINNOW_OPS_DELTA_RULE_BLOCK
#define WINNOW_OPS_DELTA_RULE_BLOCK
namespace winnow::ops {

// A token's operands for a block of one head's columns, whose arrays are padded to a block.
struct DeltaToken {
  const float* query;
  const float* key;
  float decay;
  float rate;
  bool corrects;
  const float* value;
  float* out;
};

}  // namespace winnow::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace winnow::ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using cpu::kDeltaColumns;

float DeltaMatch(const float* key, const float* query, std::size_t rows) {
  const hn::ScalableTag<float> d;
  auto sum = hn::Zero(d);
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= rows; i += hn::Lanes(d)) {
    sum = hn::MulAdd(hn::LoadU(d, key + i), hn::LoadU(d, query + i), sum);
  }
  float match = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; i < rows; ++i) {
    match += key[i] * query[i];
  }
  return match;
}

// With m = S^T k and n = S^T q of the state before the token, the output is
// decay n + (k . q) u, where u = rate (v - decay m): the state is read twice and written once.
void DeltaStep(float* state, std::size_t stride, std::size_t rows, const DeltaToken& token) {
  const hn::CappedTag<float, kDeltaColumns> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto match = hn::Set(d, DeltaMatch(token.key, token.query, rows));
  for (std::size_t at = 0; at < kDeltaColumns; at += lanes) {
    float* column = state + at;
    auto m0 = hn::Zero(d);
    auto m1 = hn::Zero(d);
    auto n0 = hn::Zero(d);
    auto n1 = hn::Zero(d);
    std::size_t i = 0;
    for (; i + 2 <= rows; i += 2) {
      const auto s0 = hn::LoadU(d, column + i * stride);
      const auto s1 = hn::LoadU(d, column + (i + 1) * stride);
      m0 = hn::MulAdd(s0, hn::Set(d, token.key[i]), m0);
      m1 = hn::MulAdd(s1, hn::Set(d, token.key[i + 1]), m1);
      n0 = hn::MulAdd(s0, hn::Set(d, token.query[i]), n0);
      n1 = hn::MulAdd(s1, hn::Set(d, token.query[i + 1]), n1);
    }
    if (i < rows) {
      const auto s0 = hn::LoadU(d, column + i * stride);
      m0 = hn::MulAdd(s0, hn::Set(d, token.key[i]), m0);
      n0 = hn::MulAdd(s0, hn::Set(d, token.query[i]), n0);
    }
    const auto decay = hn::Set(d, token.decay);
    const auto value = hn::LoadU(d, token.value + at);
    const auto error = token.corrects ? hn::Sub(value, hn::Mul(decay, hn::Add(m0, m1))) : value;
    const auto update = hn::Mul(hn::Set(d, token.rate), error);
    const auto old = hn::Mul(decay, hn::Add(n0, n1));
    hn::StoreU(hn::MulAdd(match, update, old), d, token.out + at);
    for (std::size_t row = 0; row < rows; ++row) {
      float* place = column + row * stride;
      const auto kept = hn::Mul(decay, hn::LoadU(d, place));
      hn::StoreU(hn::MulAdd(hn::Set(d, token.key[row]), update, kept), d, place);
    }
  }
}

}  // namespace winnow::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::ops {

HWY_EXPORT(DeltaStep);

namespace {

using cpu::kDeltaColumns;

class DeltaBlock {
 public:
  DeltaBlock(const DeltaRuleShape& shape, const DeltaRuleChunk& chunk, std::size_t head,
             std::size_t first)
      : chunk_(chunk),
        columns_(shape, head, first),
        width_(static_cast<std::size_t>(shape.value_dim)),
        corrects_(shape.corrects),
        state_(chunk.state.data() + head * columns_.rows * width_ + first) {}

  void run() const {
    // A single token is not worth a copy.
    if (chunk_.queries.rows == 1 && columns_.count == kDeltaColumns) {
      return take(state_, width_);
    }
    std::vector<float> block(columns_.rows * kDeltaColumns, 0.0F);
    for (std::size_t i = 0; i < columns_.rows; ++i) {
      std::copy_n(state_ + i * width_, columns_.count, &block[i * kDeltaColumns]);
    }
    take(block.data(), kDeltaColumns);
    for (std::size_t i = 0; i < columns_.rows; ++i) {
      std::copy_n(&block[i * kDeltaColumns], columns_.count, state_ + i * width_);
    }
  }

 private:
  void take(float* state, std::size_t stride) const {
    std::array<float, kDeltaColumns> value{};
    std::array<float, kDeltaColumns> out{};
    for (std::size_t t = 0; t < chunk_.queries.rows; ++t) {
      std::copy_n(chunk_.values.row(t).data() + columns_.value_column, columns_.count,
                  value.data());
      HWY_DYNAMIC_DISPATCH(DeltaStep)
      (state, stride, columns_.rows,
       {.query = chunk_.queries.row(t).data() + columns_.key_column,
        .key = chunk_.keys.row(t).data() + columns_.key_column,
        .decay = chunk_.decays.row(t)[columns_.head],
        .rate = chunk_.rates.row(t)[columns_.head],
        .corrects = corrects_,
        .value = value.data(),
        .out = out.data()});
      std::copy_n(out.data(), columns_.count, chunk_.out.row(t).data() + columns_.value_column);
    }
  }

  const DeltaRuleChunk& chunk_;
  cpu::DeltaColumns columns_;
  std::size_t width_;
  bool corrects_;
  float* state_;
};

}  // namespace

void delta_rule(const DeltaRuleShape& shape, std::span<const DeltaRuleChunk> chunks) {
  assert(shape.value_heads % shape.key_heads == 0);
  const std::size_t blocks =
      (static_cast<std::size_t>(shape.value_dim) + kDeltaColumns - 1) / kDeltaColumns;
  const std::size_t per_chunk = static_cast<std::size_t>(shape.value_heads) * blocks;
  parallel_each(chunks.size() * per_chunk, [&](std::size_t i, int) {
    const std::size_t piece = i % per_chunk;
    DeltaBlock(shape, chunks[i / per_chunk], piece / blocks, piece % blocks * kDeltaColumns).run();
  });
}

namespace {

// log(1 + exp(x))
float softplus(float x) {
  constexpr float kLinear = 20.0F;  // above this value it is x to float precision
  return x > kLinear ? x : std::log1p(std::exp(x));
}

}  // namespace

void delta_gates(Matrix<float> decays, Matrix<float> rates, std::span<const float> log_decay,
                 std::span<const float> bias) {
  assert(decays.rows == rates.rows && decays.cols == rates.cols);
  assert(log_decay.size() == decays.cols && bias.size() == decays.cols);
  cpu::for_rows(decays.rows, decays.cols, [&](std::size_t t) {
    for (std::size_t h = 0; h < decays.cols; ++h) {
      float& decay = decays.row(t)[h];
      decay = std::exp(-std::exp(log_decay[h]) * softplus(decay + bias[h]));
      float& rate = rates.row(t)[h];
      rate = 1.0F / (1.0F + std::exp(-rate));
    }
  });
}

void state_space_gates(Matrix<float> decays, Matrix<float> rates, std::span<const float> log_decay,
                       std::span<const float> bias, const RateLimits& limits) {
  assert(decays.rows == rates.rows && decays.cols == rates.cols);
  assert(log_decay.size() == decays.cols && bias.size() == decays.cols);
  cpu::for_rows(decays.rows, decays.cols, [&](std::size_t t) {
    for (std::size_t h = 0; h < decays.cols; ++h) {
      float& decay = decays.row(t)[h];
      const float rate = std::clamp(softplus(decay + bias[h]), limits.lowest, limits.highest);
      rates.row(t)[h] = rate;
      decay = std::exp(-std::exp(log_decay[h]) * rate);
    }
  });
}

}  // namespace winnow::ops
#endif  // HWY_ONCE
