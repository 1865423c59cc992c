// Training attention, forward: tiles of queries over blocks of keys, with a running softmax.
#include <cmath>

#include "ops/cpu/attention/running_softmax.h"
#include "ops/cpu/attention/training_tile.h"

namespace winnow::ops {
namespace {

using cpu::Head;
using cpu::kBlock;
using cpu::Tile;
using cpu::TileScores;

class Forward {
 public:
  Forward(Workspace& workspace, const TrainingAttention& attention)
      : attention_(&attention), scores_(workspace, attention) {
    const std::size_t rows =
        cpu::tile_tokens(attention) * static_cast<std::size_t>(attention.group);
    out_ = workspace.take<float>(rows * static_cast<std::size_t>(attention.head_dim));
    softmax_.resize(rows);
  }

  void run(const Head& head, const Tile& tile, Matrix<float> out, Matrix<float> normalizers) {
    std::ranges::fill(out_, 0.0F);
    const auto group = static_cast<std::size_t>(attention_->group);
    for (std::size_t row = 0; row < softmax_.size(); ++row) {
      softmax_[row] = cpu::softmax_after(head.sinks, row % group);
    }
    scores_.load_queries(head, tile);
    const auto [begin, end] = cpu::blocks_of(*attention_, tile);
    for (std::size_t block = begin; block < end; ++block) {
      scores_.compute(head, tile, block);
      for (std::size_t row = 0; row < scores_.rows(tile); ++row) {
        weigh(tile, row, block);
      }
      cpu::add_product(out_of(tile), {scores_.matrix(tile).data, kBlock, 1},
                       cpu::block_rows(head.values, block));
    }
    for (std::size_t row = 0; row < scores_.rows(tile); ++row) {
      const std::size_t token = tile.first + row / group;
      const auto source = out_of(tile).row(row);
      const auto& [shift, sum] = softmax_[row];
      const float inverse = 1.0F / sum;
      std::ranges::transform(source, out.row(token).data() + row % group * source.size(),
                             [inverse](float x) { return x * inverse; });
      normalizers.row(token)[row % group] = shift + std::log(sum);
    }
  }

 private:
  [[nodiscard]] Matrix<float> out_of(const Tile& tile) const {
    return {out_.data(), scores_.rows(tile), static_cast<std::size_t>(attention_->head_dim)};
  }

  // Converts a row's scores to weights relative to its new shift.
  void weigh(const Tile& tile, std::size_t row, std::size_t block) {
    const auto scores = scores_.matrix(tile).row(row);
    const auto [begin, end] = scores_.visible(tile, row, block);
    std::ranges::fill(scores.first(begin), 0.0F);
    std::ranges::fill(scores.subspan(end), 0.0F);
    softmax_[row].take(scores.subspan(begin, end - begin), out_of(tile).row(row));
  }

  const TrainingAttention* attention_;
  TileScores scores_;
  std::span<float> out_;                      // [rows, D], unnormalised
  std::vector<cpu::RunningSoftmax> softmax_;  // [rows]
};

std::vector<Tile> tiles_of(const TrainingAttention& attention) {
  std::vector<Tile> tiles;
  const std::size_t tokens = attention.queries.rows;
  const std::size_t step = cpu::tile_tokens(attention);
  for (std::size_t first = 0; first < tokens; first += step) {
    tiles.push_back({first, std::min(first + step, tokens)});
  }
  return tiles;
}

}  // namespace

void training_attention(Workspace& workspace, const TrainingAttention& attention, Matrix<float> out,
                        Matrix<float> normalizers) {
  cpu::check(attention);
  const Workspace::Scope scope(workspace);
  const std::vector<Head> heads = cpu::heads_of(workspace, attention, false);
  const std::vector<Tile> tiles = tiles_of(attention);
  std::vector<Forward> threads = cpu::workers<Forward>(workspace, attention);
  const auto group = static_cast<std::size_t>(attention.group);
  const std::size_t width = group * static_cast<std::size_t>(attention.head_dim);
  parallel_each(heads.size() * tiles.size(), [&](std::size_t i, int thread) {
    const std::size_t head = i % heads.size();
    threads[static_cast<std::size_t>(thread)].run(heads[head], tiles[i / heads.size()],
                                                  cpu::columns(out, head, width),
                                                  cpu::columns(normalizers, head, group));
  });
}

}  // namespace winnow::ops
