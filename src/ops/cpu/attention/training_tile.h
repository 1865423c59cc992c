// Shared by forward and backward of training attention: a tile of queries and a block of keys.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <span>
#include <vector>

#include "base/threads.h"
#include "ops/cpu/linear/small_gemm.h"
#include "ops/cpu/soft_cap.h"
#include "ops/training_attention.h"

namespace winnow::ops::cpu {

inline constexpr std::size_t kBlock = 64;     // keys
inline constexpr std::size_t kTileRows = 96;  // approximate query rows (tokens x group)

// One KV head's part of the matrices of all heads; keys and values also transposed.
struct Head {
  Matrix<const float> queries;               // [T, G * D]
  Matrix<const float> keys;                  // [T, D]
  Matrix<const float> values;                // [T, D]
  std::span<const float> keys_transposed;    // [blocks][D][kBlock], padded with zeros
  std::span<const float> values_transposed;  // the same
  const float* bias;                         // bias_j at j * bias_stride, or null
  std::size_t bias_stride;
  const float* sinks;  // [G], or null
};

// Query tokens [first, last) of a head: rows (token - first) * G + g.
struct Tile {
  std::size_t first;
  std::size_t last;
};

template <class T>
Matrix<T> columns(const Matrix<T>& matrix, std::size_t head, std::size_t width) {
  return {matrix.data + head * width, matrix.rows, width, matrix.stride};
}

inline std::span<const float> transpose_blocks(Workspace& workspace, Matrix<const float> rows) {
  const std::size_t blocks = (rows.rows + kBlock - 1) / kBlock;
  const auto result = workspace.take<float>(blocks * rows.cols * kBlock);
  parallel_ranges(blocks, [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t j = begin * kBlock; j < end * kBlock; ++j) {
      float* block = &result[j / kBlock * rows.cols * kBlock];
      for (std::size_t d = 0; d < rows.cols; ++d) {
        block[d * kBlock + j % kBlock] = j < rows.rows ? rows.row(j)[d] : 0.0F;
      }
    }
  });
  return result;
}

inline const float* sinks_of(const TrainingAttention& attention, std::size_t kv_head) {
  const auto group = static_cast<std::size_t>(attention.group);
  return attention.sinks.empty() ? nullptr : &attention.sinks[kv_head * group];
}

/// The first key that a query sees.
inline std::size_t first_seen(const TrainingAttention& attention, std::size_t token) {
  const auto first = static_cast<std::size_t>(attention.first_key[token]);
  const auto reach = static_cast<std::size_t>(attention.reach);
  return reach == 0 || token < reach ? first : std::max(first, token + 1 - reach);
}

inline std::vector<Head> heads_of(Workspace& workspace, const TrainingAttention& attention,
                                  bool backward) {
  const auto dim = static_cast<std::size_t>(attention.head_dim);
  const std::size_t width = static_cast<std::size_t>(attention.group) * dim;
  std::vector<Head> heads;
  for (std::size_t h = 0; h < attention.keys.cols / dim; ++h) {
    const auto keys = columns(attention.keys, h, dim);
    const auto values = columns(attention.values, h, dim);
    const bool biased = attention.bias.data != nullptr;
    heads.push_back({columns(attention.queries, h, width), keys, values,
                     transpose_blocks(workspace, keys),
                     backward ? transpose_blocks(workspace, values) : std::span<const float>(),
                     biased ? attention.bias.data + h : nullptr, attention.bias.stride,
                     sinks_of(attention, h)});
  }
  return heads;
}

inline std::size_t tile_tokens(const TrainingAttention& attention) {
  return std::max<std::size_t>(1, kTileRows / static_cast<std::size_t>(attention.group));
}

// One thread's scratch memory for a tile and a block of keys.
class TileScores {
 public:
  TileScores(Workspace& workspace, const TrainingAttention& attention)
      : attention_(&attention),
        group_(static_cast<std::size_t>(attention.group)),
        dim_(static_cast<std::size_t>(attention.head_dim)) {
    const std::size_t rows = tile_tokens(attention) * group_;
    scores_ = workspace.take<float>(rows * kBlock);
    queries_ = workspace.take<float>(rows * dim_);
  }

  /// The tile's queries as rows [tokens * G, D], multiplied by the scale.
  void load_queries(const Head& head, const Tile& tile) {
    for (std::size_t t = tile.first; t < tile.last; ++t) {
      std::ranges::transform(head.queries.row(t), &queries_[(t - tile.first) * group_ * dim_],
                             [this](float q) { return q * attention_->scale; });
    }
  }

  [[nodiscard]] std::size_t rows(const Tile& tile) const {
    return (tile.last - tile.first) * group_;
  }
  [[nodiscard]] Matrix<float> matrix(const Tile& tile) const {
    return {scores_.data(), rows(tile), kBlock};
  }
  [[nodiscard]] Matrix<const float> queries(const Tile& tile) const {
    return {queries_.data(), rows(tile), dim_};
  }

  /// Scores of keys [block * kBlock, ...), with the bias; those that a row does not see are
  /// undefined. With a soft cap, `capped` receives the scores after the cap and before the bias.
  void compute(const Head& head, const Tile& tile, std::size_t block,
               std::span<float> capped = {}) {
    const Matrix<float> scores = matrix(tile);
    std::fill_n(scores.data, scores.rows * kBlock, 0.0F);
    add_product(scores, {queries_.data(), dim_, 1},
                {&head.keys_transposed[block * dim_ * kBlock], dim_, kBlock});
    if (attention_->soft_cap > 0.0F) {
      const auto all = scores_.first(scores.rows * kBlock);
      soft_cap(all, attention_->soft_cap);
      if (!capped.empty()) {
        std::ranges::copy(all, capped.begin());
      }
    }
    if (head.bias == nullptr) {
      return;
    }
    for (std::size_t row = 0; row < scores.rows; ++row) {
      const auto [begin, end] = beyond_window(tile, row, block);
      for (std::size_t j = begin; j < end; ++j) {
        scores.row(row)[j] += head.bias[(block * kBlock + j) * head.bias_stride];
      }
    }
  }

  struct Range {
    std::size_t begin;
    std::size_t end;
  };
  /// Keys of the block that a row sees.
  [[nodiscard]] Range visible(const Tile& tile, std::size_t row, std::size_t block) const {
    const std::size_t token = tile.first + row / group_;
    return within(first_seen(*attention_, token), token + 1, block);
  }
  /// The keys among these that are beyond the window.
  [[nodiscard]] Range beyond_window(const Tile& tile, std::size_t row, std::size_t block) const {
    const std::size_t token = tile.first + row / group_;
    const auto window = static_cast<std::size_t>(attention_->window);
    return within(first_seen(*attention_, token), token > window ? token - window : 0, block);
  }

 private:
  // Keys [begin, end) of the sequence as positions in the block.
  static Range within(std::size_t begin, std::size_t end, std::size_t block) {
    const std::size_t first = block * kBlock;
    const auto inside = [first](std::size_t key) {
      return std::clamp(key, first, first + kBlock) - first;
    };
    const std::size_t from = inside(begin);
    return {from, std::max(from, inside(end))};
  }

  const TrainingAttention* attention_;
  std::size_t group_;
  std::size_t dim_;
  std::span<float> scores_;   // [rows, kBlock]
  std::span<float> queries_;  // [rows, D]
};

/// The first block of keys that a tile sees, and one past the last.
inline TileScores::Range blocks_of(const TrainingAttention& attention, const Tile& tile) {
  return {first_seen(attention, tile.first) / kBlock, (tile.last - 1) / kBlock + 1};
}

/// Rows of the keys or values in a block.
inline Matrix<const float> block_rows(Matrix<const float> rows, std::size_t block) {
  return rows.slice(block * kBlock, std::min(rows.rows, (block + 1) * kBlock));
}

/// One scratch of type `Worker` per thread.
template <class Worker>
std::vector<Worker> workers(Workspace& workspace, const TrainingAttention& attention) {
  std::vector<Worker> result;
  result.reserve(static_cast<std::size_t>(thread_count()));
  for (int thread = 0; thread < thread_count(); ++thread) {
    result.emplace_back(workspace, attention);
  }
  return result;
}

inline void check([[maybe_unused]] const TrainingAttention& attention) {
  assert(attention.head_dim > 0 && attention.head_dim % 8 == 0 && attention.group > 0);
  assert(attention.first_key.size() == attention.queries.rows);
  assert(attention.keys.rows == attention.queries.rows);
  assert(attention.values.rows == attention.queries.rows);
  assert(attention.first_key.empty() || attention.first_key.front() == 0);
  assert(attention.reach >= 0 && attention.soft_cap >= 0.0F);
  assert(attention.sinks.empty() ||
         attention.sinks.size() * static_cast<std::size_t>(attention.head_dim) ==
             attention.queries.cols);
}

}  // namespace winnow::ops::cpu
