// Random weights in every format.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/dtype.h"
#include "base/random.h"
#include "ops/random_values.h"
#include "ops/weight.h"

namespace winnow::ops::testing {

inline constexpr WeightFormat kFormats[] = {WeightFormat::f32,  WeightFormat::f16,
                                            WeightFormat::bf16, WeightFormat::int8,
                                            WeightFormat::int4, WeightFormat::mxfp4};

/// A random weight in any format that owns its memory.
class OwnedWeight {
 public:
  OwnedWeight(WeightFormat format, std::size_t rows, std::size_t cols, std::uint64_t seed)
      : f32_(testing::normal(rows * cols, seed)) {
    view_ = {.format = WeightFormat::f32,
             .rows = static_cast<std::int64_t>(rows),
             .cols = static_cast<std::int64_t>(cols),
             .data = f32_.data()};
    if (format == WeightFormat::mxfp4) {
      draw_codes(format, f32_.size() / 2, -4, seed);
    } else if (format == WeightFormat::int8) {
      draw_codes(format, f32_.size(), -9, seed);
    } else if (is_quantized(format)) {
      quantized_.emplace(view_, format);
      view_ = quantized_->view();
    } else if (format != WeightFormat::f32) {
      for (const float value : f32_) {
        u16_.push_back(format == WeightFormat::bf16 ? to_bf16(value).bits : to_f16(value).bits);
      }
      view_.format = format;
      view_.data = u16_.data();
    }
  }

  [[nodiscard]] const Weight& view() const { return view_; }

 private:
  /// Draws all codes, including those that quantising never produces, and powers of two from
  /// 2^`least` on as scales.
  void draw_codes(WeightFormat format, std::size_t bytes, int least, std::uint64_t seed) {
    Random random(seed, 1);
    codes_.resize(bytes);
    constexpr std::uint8_t kLeast = 0x80;                             // -128
    view_.symmetric = format == WeightFormat::int8 && seed % 2 == 0;  // half of all
    for (std::uint8_t& code : codes_) {
      code = static_cast<std::uint8_t>(random.bits());
      code += view_.symmetric && code == kLeast ? 1 : 0;
    }
    for (std::size_t i = 0; i < f32_.size() / QuantizedWeight::kGroup; ++i) {
      scales_.push_back(to_bf16(std::ldexp(1.0F, static_cast<int>(random.bits() % 4) + least)));
    }
    view_.format = format;
    view_.data = codes_.data();
    view_.scales = scales_.data();
    view_.group = QuantizedWeight::kGroup;
  }

  std::vector<float> f32_;
  std::vector<std::uint16_t> u16_;
  std::vector<std::uint8_t> codes_;
  std::vector<bf16> scales_;
  std::optional<QuantizedWeight> quantized_;
  Weight view_;
};

/// Row n in float.
inline std::vector<float> row_of(const Weight& weight, std::size_t n) {
  std::vector<float> row(static_cast<std::size_t>(weight.cols));
  dequantize_row(weight, static_cast<std::int64_t>(n), row.data());
  return row;
}

}  // namespace winnow::ops::testing
