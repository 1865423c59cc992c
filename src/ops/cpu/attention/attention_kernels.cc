#include "ops/cpu/attention/attention_kernels.h"

#include <algorithm>
#include <limits>

#include "ops/cpu/fixed_size_vectors.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/attention/attention_kernels.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "hwy/contrib/math/math-inl.h"
#include "ops/cpu/attention/entry_codes-inl.h"
#include "ops/cpu/attention/prefetch.h"
#include "ops/cpu/attention/row_blocks.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::ops::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using PanelTag = hn::CappedTag<float, kPageEntries>;
constexpr std::size_t kPanelVectors = kPageEntries / hn::MaxLanes(PanelTag());

// Rows whose scores are computed together: enough independent sums to hide the latency of an add.
constexpr int kScoreRows = kPanelVectors == 1 ? 12 : 6;
constexpr int kFewerRows = 6;

// Partial sums per score: channels are distributed among them, so that a few rows hide that latency
// too.
template <int R>
constexpr int kPartialSums = R* static_cast<int>(kPanelVectors) <= 3 ? 4
                             : R <= 3                                ? 2
                                                                     : 1;

template <class Codes, int R>
HWY_INLINE void score_block(const std::byte* keys, std::size_t head_dim,
                            const float* HWY_RESTRICT query, std::size_t query_stride,
                            float* HWY_RESTRICT scores, std::size_t score_stride,
                            const Upcoming& upcoming) {
  constexpr int kParts = kPartialSums<R>;  // head_dim is a multiple of 8
  const PanelTag d;
  const std::size_t lanes = hn::Lanes(d);
  hn::Vec<PanelTag> sums[kParts][R][kPanelVectors];
  for (auto& part : sums) {
    for (auto& row : part) {
      for (auto& sum : row) {
        sum = hn::Zero(d);
      }
    }
  }
  for (std::size_t c = 0; c < head_dim; c += kParts) {
    upcoming.fetch(c, kParts);
    for (int part = 0; part < kParts; ++part) {
      const std::size_t channel = c + static_cast<std::size_t>(part);
      hn::Vec<PanelTag> key[kPanelVectors];
      for (std::size_t v = 0; v < kPanelVectors; ++v) {
        key[v] = Codes::load(d, keys, channel * kPageEntries + v * lanes);
      }
      for (int r = 0; r < R; ++r) {
        const auto q = hn::Set(d, query[static_cast<std::size_t>(r) * query_stride + channel]);
        for (std::size_t v = 0; v < kPanelVectors; ++v) {
          sums[part][r][v] = hn::MulAdd(q, key[v], sums[part][r][v]);
        }
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    for (std::size_t v = 0; v < kPanelVectors; ++v) {
      auto sum = sums[0][r][v];
      for (int part = 1; part < kParts; ++part) {
        sum = hn::Add(sum, sums[part][r][v]);
      }
      hn::StoreU(sum, d, scores + static_cast<std::size_t>(r) * score_stride + v * lanes);
    }
  }
}

void ScorePage(const PageLayout& layout, const std::byte* page, const float* query,
               std::size_t query_stride, std::size_t rows, float* scores, std::size_t score_stride,
               std::span<const std::byte> upcoming) {
  const auto head_dim = static_cast<std::size_t>(layout.head_dim());
  const Upcoming once(upcoming, head_dim);
  const Upcoming nothing;
  with_codes(layout.format(), [&]<class Codes>(Codes) HWY_ATTR {
    for_row_blocks<kScoreRows, kFewerRows>(rows, [&]<int R>(std::size_t row) HWY_ATTR {
      score_block<Codes, R>(page, head_dim, query + row * query_stride, query_stride,
                            scores + row * score_stride, score_stride, row == 0 ? once : nothing);
    });
  });
}

// `V` vectors of the head dimension of R output rows, over all entries.
template <class Codes, int R, std::size_t V, class D>
HWY_INLINE void accumulate_block(D d, const std::byte* values, std::size_t row_codes,
                                 std::size_t channel, std::size_t entries,
                                 const float* HWY_RESTRICT weights, std::size_t weight_stride,
                                 float* HWY_RESTRICT out, std::size_t out_stride,
                                 const Upcoming& upcoming) {
  const std::size_t lanes = hn::Lanes(d);
  hn::Vec<D> sums[R][V];
  for (int r = 0; r < R; ++r) {
    for (std::size_t v = 0; v < V; ++v) {
      sums[r][v] =
          hn::LoadU(d, out + static_cast<std::size_t>(r) * out_stride + channel + v * lanes);
    }
  }
  for (std::size_t j = 0; j < entries; ++j) {
    upcoming.fetch(j, 1);
    hn::Vec<D> value[V];
    for (std::size_t v = 0; v < V; ++v) {
      value[v] = Codes::load(d, values, j * row_codes + channel + v * lanes);
    }
    for (int r = 0; r < R; ++r) {
      const auto w = hn::Set(d, weights[static_cast<std::size_t>(r) * weight_stride + j]);
      for (std::size_t v = 0; v < V; ++v) {
        sums[r][v] = hn::MulAdd(w, value[v], sums[r][v]);
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    for (std::size_t v = 0; v < V; ++v) {
      hn::StoreU(sums[r][v], d,
                 out + static_cast<std::size_t>(r) * out_stride + channel + v * lanes);
    }
  }
}

template <class Codes, int R, class D>
HWY_INLINE void accumulate_rows(D d, const std::byte* values, std::size_t row_codes,
                                std::size_t head_dim, std::size_t entries, const float* weights,
                                std::size_t weight_stride, float* out, std::size_t out_stride,
                                const Upcoming& upcoming) {
  const std::size_t lanes = hn::Lanes(d);
  const Upcoming nothing;
  const auto once = [&](std::size_t channel) { return channel == 0 ? upcoming : nothing; };
  std::size_t c = 0;
  if constexpr (R <= 3 && hn::MaxLanes(PanelTag()) > 8) {
    for (; c + 4 * lanes <= head_dim; c += 4 * lanes) {
      accumulate_block<Codes, R, 4>(d, values, row_codes, c, entries, weights, weight_stride, out,
                                    out_stride, once(c));
    }
  }
  for (; c + 2 * lanes <= head_dim; c += 2 * lanes) {
    accumulate_block<Codes, R, 2>(d, values, row_codes, c, entries, weights, weight_stride, out,
                                  out_stride, once(c));
  }
  for (; c < head_dim; c += lanes) {
    accumulate_block<Codes, R, 1>(d, values, row_codes, c, entries, weights, weight_stride, out,
                                  out_stride, once(c));
  }
}

// The number of codes from one row of values to the next.
std::size_t row_codes(const PageLayout& layout) {
  return layout.format() == EntryFormat::q4 ? 2 * layout.row_bytes()
                                            : static_cast<std::size_t>(layout.head_dim());
}

// A product of weights [rows, entries] and values, which is added to `out` [rows, head_dim].
struct Weighing {
  const float* weights;
  std::size_t weight_stride;
  std::size_t rows;
  std::size_t entries;
  float* out;
  std::size_t out_stride;
};

template <class Codes>
HWY_INLINE void accumulate_values(const std::byte* values, std::size_t row_codes,
                                  std::size_t head_dim, const Weighing& to,
                                  std::span<const std::byte> upcoming) {
  const Upcoming once(upcoming, kPageEntries);
  const Upcoming nothing;
  for_row_blocks<kFewerRows>(to.rows, [&]<int R>(std::size_t row) HWY_ATTR {
    const float* w = to.weights + row * to.weight_stride;
    float* o = to.out + row * to.out_stride;
    const Upcoming& fetched = row == 0 ? once : nothing;
    if constexpr (hn::MaxLanes(PanelTag()) > 8) {
      if (head_dim % kPageEntries == 0) {
        return accumulate_rows<Codes, R>(PanelTag(), values, row_codes, head_dim, to.entries, w,
                                         to.weight_stride, o, to.out_stride, fetched);
      }
    }
    accumulate_rows<Codes, R>(hn::CappedTag<float, 8>(), values, row_codes, head_dim, to.entries, w,
                              to.weight_stride, o, to.out_stride, fetched);
  });
}

// The codes of a joint page's entries, row by row: [kPageEntries, head_dim].
template <class Codes>
HWY_INLINE void turn_keys(const std::byte* keys, std::size_t head_dim, float* HWY_RESTRICT rows) {
  const PanelTag d;
  const std::size_t lanes = hn::Lanes(d);
  HWY_ALIGN float codes[kPageEntries];
  for (std::size_t c = 0; c < head_dim; ++c) {
    for (std::size_t v = 0; v < kPanelVectors; ++v) {
      hn::Store(Codes::load(d, keys, c * kPageEntries + v * lanes), d, codes + v * lanes);
    }
    for (std::size_t j = 0; j < kPageEntries; ++j) {
      rows[j * head_dim + c] = codes[j];
    }
  }
}

void AccumulatePage(const PageLayout& layout, const std::byte* page, int entries,
                    const float* weights, std::size_t weight_stride, std::size_t rows, float* out,
                    std::size_t out_stride, std::span<const std::byte> upcoming) {
  const auto head_dim = static_cast<std::size_t>(layout.head_dim());
  const Weighing to{weights, weight_stride, rows, static_cast<std::size_t>(entries),
                    out,     out_stride};
  with_codes(layout.format(), [&]<class Codes>(Codes) HWY_ATTR {
    if (!layout.joint()) {
      return accumulate_values<Codes>(page + layout.values_offset(), row_codes(layout), head_dim,
                                      to, upcoming);
    }
    HWY_ALIGN float values[kPageEntries * kMostEntryChannels];
    turn_keys<Codes>(page, head_dim, values);
    accumulate_values<F32Codes>(reinterpret_cast<const std::byte*>(values), head_dim, head_dim, to,
                                {});
  });
}

void DecodePage(const PageLayout& layout, const std::byte* page, float* keys, float* values) {
  const hn::CappedTag<float, 8> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto head_dim = static_cast<std::size_t>(layout.head_dim());
  float scale[2 * kPageEntries];
  const int scales = static_cast<int>(layout.first_value_scale()) + kPageEntries;
  for (int i = 0; i < scales; ++i) {
    scale[i] = layout.scaled()
                   ? to_float(reinterpret_cast<const bf16*>(page + layout.scales_offset())[i]) *
                         code_unit(layout)
                   : 1.0F;
  }
  with_codes(layout.format(), [&]<class Codes>(Codes) HWY_ATTR {
    for (std::size_t i = 0; i < head_dim * kPageEntries; i += lanes) {
      const auto factors = hn::LoadU(d, scale + i % kPageEntries);
      hn::StoreU(hn::Mul(Codes::load(d, page, i), factors), d, keys + i);
    }
    if (layout.joint()) {
      return turn_keys<F32Codes>(reinterpret_cast<const std::byte*>(keys), head_dim, values);
    }
    const std::byte* value_codes = page + layout.values_offset();
    for (std::size_t j = 0; j < kPageEntries; ++j) {
      const auto factor = hn::Set(d, scale[kPageEntries + j]);
      for (std::size_t c = 0; c < head_dim; c += lanes) {
        const auto codes = Codes::load(d, value_codes, j * row_codes(layout) + c);
        hn::StoreU(hn::Mul(codes, factor), d, values + j * head_dim + c);
      }
    }
  });
}

void Multiply(std::span<float> x, const float* factors, float unit) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto units = hn::Set(d, unit);
  std::size_t i = 0;
  for (; i + lanes <= x.size(); i += lanes) {
    const auto factor = hn::Mul(hn::LoadU(d, factors + i), units);
    hn::StoreU(hn::Mul(hn::LoadU(d, x.data() + i), factor), d, x.data() + i);
  }
  for (; i < x.size(); ++i) {
    x[i] *= factors[i] * unit;
  }
}

float MaxOf(std::span<const float> x) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  auto best = hn::Set(d, -std::numeric_limits<float>::infinity());
  std::size_t i = 0;
  for (; i + lanes <= x.size(); i += lanes) {
    best = hn::Max(best, hn::LoadU(d, x.data() + i));
  }
  float result = hn::GetLane(hn::MaxOfLanes(d, best));
  for (; i < x.size(); ++i) {
    result = std::max(result, x[i]);
  }
  return result;
}

float ExpShifted(std::span<float> x, float shift) {
  const PanelTag d;
  const std::size_t lanes = hn::Lanes(d);
  const auto offset = hn::Set(d, shift);
  auto sum = hn::Zero(d);
  std::size_t i = 0;
  for (; i + lanes <= x.size(); i += lanes) {
    const auto y = hn::Exp(d, hn::Sub(hn::LoadU(d, x.data() + i), offset));
    hn::StoreU(y, d, x.data() + i);
    sum = hn::Add(sum, y);
  }
  if (i < x.size()) {
    const std::size_t count = x.size() - i;
    float rest[kPageEntries] = {};
    std::copy_n(x.data() + i, count, rest);
    const auto seen = hn::FirstN(d, count);
    const auto y = hn::IfThenElseZero(seen, hn::Exp(d, hn::Sub(hn::LoadU(d, rest), offset)));
    hn::StoreU(y, d, rest);
    std::copy_n(rest, count, x.data() + i);
    sum = hn::Add(sum, y);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

void ScaleBy(std::span<float> x, float factor) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto f = hn::Set(d, factor);
  std::size_t i = 0;
  for (; i + lanes <= x.size(); i += lanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, x.data() + i), f), d, x.data() + i);
  }
  for (; i < x.size(); ++i) {
    x[i] *= factor;
  }
}

}  // namespace winnow::ops::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::ops::cpu {

HWY_EXPORT(ScorePage);
HWY_EXPORT(AccumulatePage);
HWY_EXPORT(DecodePage);
HWY_EXPORT(Multiply);
HWY_EXPORT(MaxOf);
HWY_EXPORT(ExpShifted);
HWY_EXPORT(ScaleBy);

void score_page(const PageLayout& layout, const std::byte* page, const float* query,
                std::size_t query_stride, std::size_t rows, float* scores, std::size_t score_stride,
                std::span<const std::byte> upcoming) {
  HWY_DYNAMIC_DISPATCH(ScorePage)
  (layout, page, query, query_stride, rows, scores, score_stride, upcoming);
}

void accumulate_page(const PageLayout& layout, const std::byte* page, int entries,
                     const float* weights, std::size_t weight_stride, std::size_t rows, float* out,
                     std::size_t out_stride, std::span<const std::byte> upcoming) {
  HWY_DYNAMIC_DISPATCH(AccumulatePage)
  (layout, page, entries, weights, weight_stride, rows, out, out_stride, upcoming);
}

float code_unit(const PageLayout& layout) {
  return layout.format() == EntryFormat::f8e4m3 ? 256.0F : 1.0F;
}

void dequantize_page(const PageLayout& layout, const std::byte* page, float* keys, float* values) {
  HWY_DYNAMIC_DISPATCH(DecodePage)(layout, page, keys, values);
}

void multiply(std::span<float> x, const float* factors, float unit) {
  HWY_DYNAMIC_DISPATCH(Multiply)(x, factors, unit);
}

float max_of(std::span<const float> x) {
  return HWY_DYNAMIC_DISPATCH(MaxOf)(x);
}

float exp_shifted(std::span<float> x, float shift) {
  return HWY_DYNAMIC_DISPATCH(ExpShifted)(x, shift);
}

void scale_by(std::span<float> x, float factor) {
  HWY_DYNAMIC_DISPATCH(ScaleBy)(x, factor);
}

}  // namespace winnow::ops::cpu
#endif  // HWY_ONCE
