// Training attention, backward: each tile's weights are recomputed from the log-sum-exp of the
// forward pass (Dao et al. 2022).
#include <cmath>
#include <numeric>

#include "ops/cpu/attention/attention_kernels.h"
#include "ops/cpu/attention/training_tile.h"

namespace winnow::ops {
namespace {

using cpu::Head;
using cpu::kBlock;
using cpu::Tile;
using cpu::TileScores;

/// A KV head's part of the operands that backward reads and of the gradients that it adds to.
struct HeadGradients {
  Matrix<const float> out;          // [T, G * D]
  Matrix<const float> dout;         // [T, G * D]
  Matrix<const float> normalizers;  // [T, G]
  Matrix<float> queries;            // [T, G * D]
  Matrix<float> keys;               // [T, D]
  Matrix<float> values;             // [T, D]
  float* bias;                      // at j * bias_stride, or null
  std::size_t bias_stride;
};

class Backward {
 public:
  Backward(Workspace& workspace, const TrainingAttention& attention)
      : attention_(&attention),
        scores_(workspace, attention),
        group_(static_cast<std::size_t>(attention.group)),
        dim_(static_cast<std::size_t>(attention.head_dim)) {
    const std::size_t rows = cpu::tile_tokens(attention) * group_;
    dscores_ = workspace.take<float>(rows * kBlock);
    dout_ = workspace.take<float>(rows * dim_);
    dqueries_ = workspace.take<float>(rows * dim_);
    dots_ = workspace.take<float>(rows);
    if (attention.soft_cap > 0.0F) {
      capped_ = workspace.take<float>(rows * kBlock);
    }
  }

  /// A document: its tokens and those of other documents do not see each other.
  void run(const Head& head, const HeadGradients& gradients, const Tile& document) {
    const std::size_t step = cpu::tile_tokens(*attention_);
    for (std::size_t first = document.first; first < document.last; first += step) {
      const Tile tile{first, std::min(first + step, document.last)};
      load(head, gradients, tile);
      const auto [begin, end] = cpu::blocks_of(*attention_, tile);
      for (std::size_t block = begin; block < end; ++block) {
        run_block(head, gradients, tile, block, document);
      }
      add_queries(gradients, tile);
    }
  }

 private:
  void load(const Head& head, const HeadGradients& gradients, const Tile& tile) {
    scores_.load_queries(head, tile);
    std::ranges::fill(dqueries_, 0.0F);
    for (std::size_t row = 0; row < scores_.rows(tile); ++row) {
      const std::size_t token = tile.first + row / group_;
      const float* out = gradients.out.row(token).data() + row % group_ * dim_;
      const float* dout = gradients.dout.row(token).data() + row % group_ * dim_;
      float dot = 0.0F;
      for (std::size_t d = 0; d < dim_; ++d) {
        dout_[row * dim_ + d] = dout[d];
        dot += out[d] * dout[d];
      }
      dots_[row] = dot;
    }
  }

  void run_block(const Head& head, const HeadGradients& gradients, const Tile& tile,
                 std::size_t block, const Tile& document) {
    // Only the document's own keys: another task adds to other documents' keys in the block.
    const std::size_t first = std::max(document.first, block * kBlock);
    const std::size_t last = std::min(document.last, (block + 1) * kBlock);
    const std::size_t skipped = first - block * kBlock;
    const std::size_t rows = scores_.rows(tile);
    const Matrix<const float> dout(dout_.data(), rows, dim_);

    compute_weights(head, gradients, tile, block);
    const float* weights = scores_.matrix(tile).data + skipped;
    cpu::add_product(gradients.values.slice(first, last), {weights, 1, kBlock}, dout);

    compute_dscores(head, gradients, tile, block);
    const float* dscores = dscores_.data() + skipped;
    cpu::add_product({dqueries_.data(), rows, dim_}, {dscores, kBlock, 1},
                     head.keys.slice(first, last));
    cpu::add_product(gradients.keys.slice(first, last), {dscores, 1, kBlock},
                     scores_.queries(tile));
  }

  // P = exp(S - normalizer), 0 for keys that a row does not see.
  void compute_weights(const Head& head, const HeadGradients& gradients, const Tile& tile,
                       std::size_t block) {
    scores_.compute(head, tile, block, capped_);
    for (std::size_t row = 0; row < scores_.rows(tile); ++row) {
      const auto scores = scores_.matrix(tile).row(row);
      const auto [begin, end] = scores_.visible(tile, row, block);
      std::ranges::fill(scores.first(begin), 0.0F);
      std::ranges::fill(scores.subspan(end), 0.0F);
      const float normalizer = gradients.normalizers.row(tile.first + row / group_)[row % group_];
      cpu::exp_shifted(scores.subspan(begin, end - begin), normalizer);
    }
  }

  // dS = P (dP - out . dout), with dP = dout V^T; its sums over rows beyond the window are the
  // bias's gradient. The soft cap's derivative then gives the gradient of the uncapped scores.
  void compute_dscores(const Head& head, const HeadGradients& gradients, const Tile& tile,
                       std::size_t block) {
    const std::size_t rows = scores_.rows(tile);
    std::fill_n(dscores_.data(), rows * kBlock, 0.0F);
    cpu::add_product({dscores_.data(), rows, kBlock}, {dout_.data(), dim_, 1},
                     {&head.values_transposed[block * dim_ * kBlock], dim_, kBlock});
    for (std::size_t row = 0; row < rows; ++row) {
      const float* weights = scores_.matrix(tile).row(row).data();
      float* dscores = &dscores_[row * kBlock];
      for (std::size_t j = 0; j < kBlock; ++j) {
        dscores[j] = weights[j] * (dscores[j] - dots_[row]);
      }
      if (gradients.bias != nullptr) {
        const auto [begin, end] = scores_.beyond_window(tile, row, block);
        for (std::size_t j = begin; j < end; ++j) {
          gradients.bias[(block * kBlock + j) * gradients.bias_stride] += dscores[j];
        }
      }
      if (attention_->soft_cap > 0.0F) {
        cpu::soft_cap_backward({dscores, kBlock}, capped_.subspan(row * kBlock, kBlock),
                               attention_->soft_cap);
      }
    }
  }

  void add_queries(const HeadGradients& gradients, const Tile& tile) {
    for (std::size_t row = 0; row < scores_.rows(tile); ++row) {
      float* target = gradients.queries.row(tile.first + row / group_).data() + row % group_ * dim_;
      for (std::size_t d = 0; d < dim_; ++d) {
        target[d] += attention_->scale * dqueries_[row * dim_ + d];
      }
    }
  }

  const TrainingAttention* attention_;
  TileScores scores_;
  std::size_t group_;
  std::size_t dim_;
  std::span<float> dscores_;   // [rows, kBlock]
  std::span<float> dout_;      // [rows, D]
  std::span<float> dqueries_;  // [rows, D], before the scale
  std::span<float> dots_;      // [rows]: out . dout
  std::span<float> capped_;    // [rows, kBlock]: scores after the soft cap, or empty
};

std::vector<Tile> documents_of(const TrainingAttention& attention) {
  std::vector<Tile> documents;
  for (std::size_t t = 0; t < attention.queries.rows; ++t) {
    if (static_cast<std::size_t>(attention.first_key[t]) == t) {
      documents.push_back({t, t});
    }
    documents.back().last = t + 1;
  }
  return documents;
}

// A sink has a weight P and no value, so its dS is -P (out . dout). The sums are per head, so that
// the number of threads does not matter.
void add_sink_gradients(const TrainingAttention& attention, Matrix<const float> out,
                        Matrix<const float> normalizers, Matrix<const float> dout,
                        std::span<float> gradients) {
  const auto dim = static_cast<std::size_t>(attention.head_dim);
  parallel_each(gradients.size(), [&](std::size_t head, int) {
    double sum = 0.0;
    for (std::size_t t = 0; t < out.rows; ++t) {
      const float* values = &out.row(t)[head * dim];
      const float dot = std::inner_product(values, values + dim, &dout.row(t)[head * dim], 0.0F);
      sum += double{std::exp(attention.sinks[head] - normalizers.row(t)[head]) * dot};
    }
    gradients[head] -= static_cast<float>(sum);
  });
}

}  // namespace

void training_attention_backward(Workspace& workspace, const TrainingAttention& attention,
                                 Matrix<const float> out, Matrix<const float> normalizers,
                                 Matrix<const float> dout,
                                 const TrainingAttentionGradients& gradients) {
  cpu::check(attention);
  const Workspace::Scope scope(workspace);
  const std::vector<Head> heads = cpu::heads_of(workspace, attention, true);
  const std::vector<Tile> documents = documents_of(attention);
  std::vector<Backward> threads = cpu::workers<Backward>(workspace, attention);
  const auto group = static_cast<std::size_t>(attention.group);
  const auto dim = static_cast<std::size_t>(attention.head_dim);
  const std::size_t width = group * dim;
  parallel_each(heads.size() * documents.size(), [&](std::size_t i, int thread) {
    const std::size_t head = i % heads.size();
    const HeadGradients own{cpu::columns(out, head, width),
                            cpu::columns(dout, head, width),
                            cpu::columns(normalizers, head, group),
                            cpu::columns(gradients.queries, head, width),
                            cpu::columns(gradients.keys, head, dim),
                            cpu::columns(gradients.values, head, dim),
                            gradients.bias.data != nullptr ? gradients.bias.data + head : nullptr,
                            gradients.bias.stride};
    threads[static_cast<std::size_t>(thread)].run(heads[head], own, documents[i / heads.size()]);
  });
  if (!attention.sinks.empty()) {
    add_sink_gradients(attention, out, normalizers, dout, gradients.sinks);
  }
}

}  // namespace winnow::ops
