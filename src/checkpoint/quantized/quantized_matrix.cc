#include "checkpoint/quantized/quantized_matrix.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/threads.h"

namespace winnow::quantized {
namespace {

// Rows that a thread reads at a time: a multiple of the rows that formats pack into a word (32).
constexpr std::int64_t kRowsAtATime = 32;

void scale_row(const QuantizedMatrix& matrix, std::int64_t row, float* values) {
  if (matrix.scales.empty()) {
    return;
  }
  const auto first = static_cast<std::size_t>(row / matrix.rows_per_block * matrix.groups);
  for (std::size_t k = 0; k < matrix.group_of.size(); ++k) {
    const std::size_t at = first + static_cast<std::size_t>(matrix.group_of[k]);
    const float zero = matrix.zeros.empty() ? 0.0F : matrix.zeros[at];
    values[k] = (values[k] - zero) * matrix.scales[at];
  }
}

template <class T, class Round>
void store(const float* values, std::size_t count, std::byte* out, const Round& round) {
  for (std::size_t i = 0; i < count; ++i) {
    const T value = round(values[i]);
    std::memcpy(out + i * sizeof(T), &value, sizeof(T));
  }
}

void store_as(DType type, const float* values, std::size_t count, std::byte* out) {
  switch (type) {
    case DType::f32:
      return store<float>(values, count, out, [](float x) { return x; });
    case DType::f16:
      return store<f16>(values, count, out, [](float x) { return to_f16(x); });
    case DType::bf16:
      return store<bf16>(values, count, out, [](float x) { return to_bf16(x); });
    default:
      fail("quantised weights become fp32, fp16 or bf16, not {}", dtype_name(type));
  }
}

}  // namespace

bool QuantizedMatrix::stays_packed() const {
  if (mxfp4) {
    return true;
  }
  if (integer_bits == 0 || !zeros.empty() || cols % kPackedGroup != 0) {
    return false;
  }
  for (std::size_t k = 0; k < group_of.size(); ++k) {
    if (group_of[k] != group_of[k - k % kPackedGroup]) {
      return false;
    }
  }
  return std::ranges::all_of(scales, [](float scale) { return to_float(to_bf16(scale)) == scale; });
}

void make_signed(QuantizedMatrix& matrix, int bits) {
  const auto middle = static_cast<float>(1 << (bits - 1));
  if (!std::ranges::all_of(matrix.zeros, [&](float zero) { return zero == middle; })) {
    return;
  }
  matrix.zeros.clear();
  matrix.integer_bits = bits;
  matrix.codes = [read = std::move(matrix.codes), cols = matrix.cols, middle](
                     std::int64_t begin, std::int64_t end, float* out) {
    read(begin, end, out);
    std::for_each(out, out + (end - begin) * cols, [middle](float& code) { code -= middle; });
  };
}

QuantizedMatrix rows_of(const QuantizedMatrix& whole, const RowSelection& selection) {
  QuantizedMatrix part;
  part.rows = selection.count;
  part.cols = whole.cols;
  part.groups = whole.groups;
  part.group_of = whole.group_of;
  part.integer_bits = whole.integer_bits;
  part.stored_bytes = whole.stored_bytes / static_cast<std::size_t>(whole.rows) *
                      static_cast<std::size_t>(selection.count);
  part.codes = [read = whole.codes, selection, cols = whole.cols](std::int64_t begin,
                                                                  std::int64_t end, float* out) {
    if (selection.step == 1) {
      return read(selection.first + begin, selection.first + end, out);
    }
    for (std::int64_t row = begin; row < end; ++row, out += cols) {
      read(selection.place(row), selection.place(row) + 1, out);
    }
  };
  if (whole.mxfp4 && selection.block == 1) {
    part.mxfp4 = {whole.mxfp4->codes + selection.first * whole.cols / 2,
                  whole.mxfp4->exponents + selection.first * whole.cols / 32, selection.step};
  }
  // The selection may begin and end within blocks, so each row gets its own scales.
  const auto select = [&](const std::vector<float>& from, std::vector<float>& to) {
    for (std::int64_t row = 0; row < selection.count && !from.empty(); ++row) {
      const auto block = from.begin() + selection.place(row) / whole.rows_per_block * whole.groups;
      to.insert(to.end(), block, block + whole.groups);
    }
  };
  select(whole.scales, part.scales);
  select(whole.zeros, part.zeros);
  return part;
}

Buffer<std::byte> dequantized(const QuantizedMatrix& matrix, DType type) {
  const auto cols = static_cast<std::size_t>(matrix.cols);
  const std::size_t row_bytes = cols * dtype_size(type);
  Buffer<std::byte> out(static_cast<std::size_t>(matrix.rows) * row_bytes);
  const std::int64_t pieces = (matrix.rows + kRowsAtATime - 1) / kRowsAtATime;
  parallel_ranges(static_cast<std::size_t>(pieces), [&](std::size_t from, std::size_t to, int) {
    Buffer<float> values(static_cast<std::size_t>(kRowsAtATime) * cols);
    for (std::size_t piece = from; piece < to; ++piece) {
      const std::int64_t begin = static_cast<std::int64_t>(piece) * kRowsAtATime;
      const std::int64_t end = std::min(begin + kRowsAtATime, matrix.rows);
      matrix.codes(begin, end, values.data());
      for (std::int64_t row = begin; row < end; ++row) {
        float* const at = values.data() + static_cast<std::size_t>(row - begin) * cols;
        scale_row(matrix, row, at);
        store_as(type, at, cols, out.data() + static_cast<std::size_t>(row) * row_bytes);
      }
    }
  });
  return out;
}

}  // namespace winnow::quantized
