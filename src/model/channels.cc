#include "model/channels.h"

namespace winnow::model {
namespace {

std::size_t width(int count) {
  return static_cast<std::size_t>(count);
}

void scale(const ModelConfig& config, ColumnOf column_of, ops::Matrix<float> x, float factor) {
  for (std::size_t t = 0; t < x.rows; ++t) {
    for (std::size_t h = 0; h < width(config.kv_heads); ++h) {
      float& channel = x.row(t)[column_of(config, h)];
      channel = factor == 0.0F ? 0.0F : channel * factor;
    }
  }
}

}  // namespace

bool borrows_channels(const ModelConfig& config) {
  return config.dmc || (config.dms && config.dms->source == DmsConfig::Source::borrowed);
}

bool clears_after_rope(const ModelConfig& config) {
  return config.dmc || (borrows_channels(config) && config.dms->rezero_after_rope);
}

std::size_t query_column(const ModelConfig& config, std::size_t head) {
  const int channel = config.dms ? config.dms->channel : 0;
  return head * width(config.group() * config.head_dim) +
         width(channel < 0 ? config.head_dim + channel : channel);
}

std::size_t key_column(const ModelConfig& config, std::size_t head) {
  return head * width(config.head_dim);
}

void gather_channels(const ModelConfig& config, ColumnOf column_of, ops::Matrix<const float> from,
                     ops::Matrix<float> to) {
  for (std::size_t t = 0; t < from.rows; ++t) {
    for (std::size_t h = 0; h < to.cols; ++h) {
      to.row(t)[h] = from.row(t)[column_of(config, h)];
    }
  }
}

void scatter_channels(const ModelConfig& config, ColumnOf column_of, ops::Matrix<float> to,
                      ops::Matrix<const float> from) {
  for (std::size_t t = 0; t < to.rows; ++t) {
    for (std::size_t h = 0; h < width(config.kv_heads); ++h) {
      to.row(t)[column_of(config, h)] = h < from.cols ? from.row(t)[h] : 0.0F;
    }
  }
}

void scale_channels(const ModelConfig& config, ops::Matrix<float> queries, ops::Matrix<float> keys,
                    float factor) {
  if (!borrows_channels(config) || factor == 1.0F) {
    return;
  }
  scale(config, query_column, queries, factor);
  if (config.dmc) {
    scale(config, key_column, keys, factor);
  }
}

}  // namespace winnow::model
