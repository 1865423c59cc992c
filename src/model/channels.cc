#include "model/channels.h"

namespace winnow::model {
namespace {

std::size_t width(int count) {
  return static_cast<std::size_t>(count);
}

std::size_t kv_heads(const ModelSpec& spec) {
  return width(spec.compressing_attention().kv_heads);
}

void scale(const ModelSpec& spec, ColumnOf column_of, ops::Matrix<float> x, float factor) {
  for (std::size_t h = 0; h < kv_heads(spec); ++h) {
    const std::size_t column = column_of(spec, h);
    for (std::size_t t = 0; t < x.rows; ++t) {
      float& channel = x.row(t)[column];
      channel = factor == 0.0F ? 0.0F : channel * factor;
    }
  }
}

}  // namespace

bool borrows_channels(const ModelSpec& spec) {
  return spec.dmc || (spec.dms && spec.dms->source == DmsConfig::Source::borrowed);
}

bool clears_after_rope(const ModelSpec& spec) {
  return spec.dmc || (borrows_channels(spec) && spec.dms->rezero_after_rope);
}

std::size_t query_column(const ModelSpec& spec, std::size_t head) {
  const int channel = spec.dms ? spec.dms->channel : 0;
  const AttentionSpec& attention = spec.compressing_attention();
  return head * width(attention.group() * attention.head_dim) +
         width(channel < 0 ? attention.head_dim + channel : channel);
}

std::size_t query_row(const ModelSpec& spec, std::size_t head) {
  const AttentionSpec& attention = spec.compressing_attention();
  const std::size_t before = head * width(attention.group());  // query heads
  const std::size_t gates = attention.output_gate ? before * width(attention.head_dim) : 0;
  return query_column(spec, head) + gates;
}

std::size_t key_column(const ModelSpec& spec, std::size_t head) {
  return head * width(spec.compressing_attention().head_dim);
}

void gather_channels(const ModelSpec& spec, ColumnOf column_of, ops::Matrix<const float> from,
                     ops::Matrix<float> to) {
  for (std::size_t h = 0; h < to.cols; ++h) {
    const std::size_t column = column_of(spec, h);
    for (std::size_t t = 0; t < from.rows; ++t) {
      to.row(t)[h] = from.row(t)[column];
    }
  }
}

void scatter_channels(const ModelSpec& spec, ColumnOf column_of, ops::Matrix<float> to,
                      ops::Matrix<const float> from) {
  for (std::size_t h = 0; h < kv_heads(spec); ++h) {
    const std::size_t column = column_of(spec, h);
    for (std::size_t t = 0; t < to.rows; ++t) {
      to.row(t)[column] = h < from.cols ? from.row(t)[h] : 0.0F;
    }
  }
}

void scale_channels(const ModelSpec& spec, ops::Matrix<float> queries, ops::Matrix<float> keys,
                    float factor) {
  if (!borrows_channels(spec) || factor == 1.0F) {
    return;
  }
  if (spec.compressing_attention().has_first_queries()) {
    scale(spec, query_column, queries, factor);
  }
  if (spec.dmc) {
    scale(spec, key_column, keys, factor);
  }
}

}  // namespace winnow::model
