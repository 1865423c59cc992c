// Prefill attention: tiles of query tokens over blocks of entries, with a running softmax.
#include <algorithm>
#include <vector>

#include "base/threads.h"
#include "ops/attention.h"
#include "ops/cpu/attention/attention_kernels.h"
#include "ops/cpu/attention/running_softmax.h"
#include "ops/cpu/soft_cap.h"

namespace winnow::ops {
namespace {

constexpr std::size_t kBlockPages = 8;
constexpr std::size_t kBlockEntries = kBlockPages * kPageEntries;
constexpr std::size_t kTileRows = 96;  // approximate query rows (tokens x group) per tile

// Query tokens [first, last) of one head.
struct QueryTile {
  const PrefillHead* head;
  std::size_t first;
  std::size_t last;
};

// Entries [first, last) of a source, and which of them each query token may see.
struct Visible {
  std::int64_t first;
  std::int64_t last;
};

// One thread's scratch memory and the state of its current tile.
class TileRunner {
 public:
  TileRunner(const AttentionShape& shape, std::size_t tile_tokens, std::span<float> memory)
      : shape_(shape),
        float_layout_(EntryFormat::f32, shape.head_dim),
        group_(static_cast<std::size_t>(shape.group)),
        dim_(static_cast<std::size_t>(shape.head_dim)) {
    const std::size_t rows = tile_tokens * group_;
    const auto part = [&memory](std::size_t size) {
      const auto result = memory.subspan(0, size);
      memory = memory.subspan(size);
      return result;
    };
    query_ = part(rows * dim_);
    out_ = part(rows * dim_);
    scores_ = part(rows * kBlockEntries);
    block_ = part(kBlockPages * page_floats(dim_));
    softmax_.resize(rows);
  }

  static std::size_t memory_size(const AttentionShape& shape, std::size_t tile_tokens) {
    const std::size_t rows = tile_tokens * static_cast<std::size_t>(shape.group);
    const auto dim = static_cast<std::size_t>(shape.head_dim);
    const std::size_t size = rows * (2 * dim + kBlockEntries) + kBlockPages * page_floats(dim);
    return (size + 15) / 16 * 16;
  }

  void run(const QueryTile& tile) {
    start(tile);
    attend_archive(tile);
    if (tile.head->window >= 0) {
      attend_band(tile);
    }
    finish(tile);
  }

 private:
  static std::size_t page_floats(std::size_t dim) { return 2 * kPageEntries * dim; }
  [[nodiscard]] std::size_t rows(const QueryTile& tile) const {
    return (tile.last - tile.first) * group_;
  }

  void start(const QueryTile& tile) {
    for (std::size_t t = tile.first; t < tile.last; ++t) {
      const auto source = tile.head->query.row(t);
      float* target = &query_[(t - tile.first) * group_ * dim_];
      std::ranges::transform(source, target, [this](float q) { return q * shape_.scale; });
    }
    std::ranges::fill(out_, 0.0F);
    for (std::size_t row = 0; row < softmax_.size(); ++row) {
      softmax_[row] = cpu::softmax_after(tile.head->sinks, row % group_);
    }
  }

  void attend_archive(const QueryTile& tile) {
    const PrefillHead& head = *tile.head;
    const std::int64_t end = head.archive_counts[tile.last - 1];
    const auto page_bytes = shape_.archive.page_bytes();
    for (std::int64_t first = 0; first < end; first += kBlockEntries) {
      const auto count = std::min<std::int64_t>(kBlockEntries, end - first);
      for (std::int64_t p = 0; p * kPageEntries < count; ++p) {
        const std::size_t page = head.archive.pages[first / kPageEntries + p];
        float* keys = block_.data() + static_cast<std::size_t>(p) * page_floats(dim_);
        cpu::dequantize_page(shape_.archive, head.archive.base + page * page_bytes, keys,
                             keys + kPageEntries * dim_);
      }
      attend_block(tile, first, count, [&head](std::size_t t) {
        return Visible{0, head.archive_counts[t]};
      });
    }
  }

  void attend_band(const QueryTile& tile) {
    const PrefillHead& head = *tile.head;
    const auto last_of = [&head](std::size_t t) {
      return static_cast<std::int64_t>(head.lead) + static_cast<std::int64_t>(t);
    };
    const auto first_of = [&](std::size_t t) {
      return std::max<std::int64_t>(0, last_of(t) - head.window);
    };
    const std::int64_t end = last_of(tile.last - 1) + 1;
    const std::int64_t begin = first_of(tile.first) / kPageEntries * kPageEntries;
    for (std::int64_t first = begin; first < end; first += kBlockEntries) {
      const auto count = std::min<std::int64_t>(kBlockEntries, end - first);
      for (std::int64_t p = 0; p * kPageEntries < count; ++p) {
        copy_band_page(head, first + p * kPageEntries, end,
                       block_.subspan(static_cast<std::size_t>(p) * page_floats(dim_)));
      }
      attend_block(tile, first, count, [&](std::size_t t) {
        return Visible{first_of(t), last_of(t) + 1};
      });
    }
  }

  void copy_band_page(const PrefillHead& head, std::int64_t first, std::int64_t end,
                      std::span<float> page) const {
    const std::size_t key_floats = kPageEntries * dim_;
    const auto entry = static_cast<std::size_t>(first);
    std::copy_n(head.band_keys + entry * dim_, key_floats, page.begin());
    const auto count = static_cast<std::size_t>(std::min<std::int64_t>(kPageEntries, end - first));
    std::copy_n(head.band_values + entry * dim_, count * dim_,
                page.begin() + static_cast<std::ptrdiff_t>(key_floats));
  }

  // block_ holds entries [first, first + count) of a source as floats; visible(t) is the range of
  // the source's entries that token t sees.
  template <class VisibleOf>
  void attend_block(const QueryTile& tile, std::int64_t first, std::int64_t count,
                    const VisibleOf& visible) {
    const auto entries = static_cast<std::size_t>(count);
    for (std::size_t p = 0; p * kPageEntries < entries; ++p) {
      cpu::score_page(float_layout_, block_page(p), query_.data(), dim_, rows(tile),
                      &scores_[p * kPageEntries], kBlockEntries, {});
    }
    for (std::size_t t = tile.first; t < tile.last; ++t) {
      Visible range = visible(t);
      range.first = std::clamp<std::int64_t>(range.first - first, 0, count);
      range.last = std::clamp<std::int64_t>(range.last - first, range.first, count);
      for (std::size_t g = 0; g < group_; ++g) {
        update_softmax((t - tile.first) * group_ + g, entries, range);
      }
    }
    for (std::size_t p = 0; p * kPageEntries < entries; ++p) {
      const auto in_page = std::min<std::size_t>(kPageEntries, entries - p * kPageEntries);
      cpu::accumulate_page(float_layout_, block_page(p), static_cast<int>(in_page),
                           &scores_[p * kPageEntries], kBlockEntries, rows(tile), out_.data(), dim_,
                           {});
    }
  }

  [[nodiscard]] const std::byte* block_page(std::size_t p) const {
    return reinterpret_cast<const std::byte*>(&block_[p * page_floats(dim_)]);
  }

  // Converts one row's scores to weights relative to its new shift; unseen entries get weight 0.
  void update_softmax(std::size_t row, std::size_t entries, Visible range) {
    const auto scores = scores_.subspan(row * kBlockEntries, entries);
    const auto begin = static_cast<std::size_t>(range.first);
    const auto end = static_cast<std::size_t>(range.last);
    std::ranges::fill(scores.first(begin), 0.0F);
    std::ranges::fill(scores.subspan(end), 0.0F);
    const auto seen = scores.subspan(begin, end - begin);
    if (shape_.soft_cap > 0.0F) {
      cpu::soft_cap(seen, shape_.soft_cap);
    }
    softmax_[row].take(seen, out_.subspan(row * dim_, dim_));
  }

  void finish(const QueryTile& tile) {
    for (std::size_t row = 0; row < rows(tile); ++row) {
      const float sum = softmax_[row].sum;
      const float inverse = sum > 0.0F ? 1.0F / sum : 0.0F;
      float* target = tile.head->out.row(tile.first + row / group_).data() + row % group_ * dim_;
      std::ranges::transform(out_.subspan(row * dim_, dim_), target,
                             [inverse](float x) { return x * inverse; });
    }
  }

  const AttentionShape& shape_;
  PageLayout float_layout_;
  std::size_t group_;
  std::size_t dim_;
  std::span<float> query_;                    // [rows, head_dim], scaled
  std::span<float> out_;                      // [rows, head_dim], unnormalised
  std::span<float> scores_;                   // [rows, kBlockEntries]
  std::span<float> block_;                    // kBlockPages float pages
  std::vector<cpu::RunningSoftmax> softmax_;  // [rows]
};

}  // namespace

void prefill_attention(Context& context, const AttentionShape& shape,
                       std::span<const PrefillHead> heads) {
  const auto group = static_cast<std::size_t>(shape.group);
  const std::size_t tile_tokens = std::max<std::size_t>(1, kTileRows / group);
  std::vector<QueryTile> tiles;
  for (const PrefillHead& head : heads) {
    for (std::size_t t = 0; t < head.query.rows; t += tile_tokens) {
      tiles.push_back({&head, t, std::min(t + tile_tokens, head.query.rows)});
    }
  }
  const Workspace::Scope scope(*context.workspace);
  const std::size_t memory_size = TileRunner::memory_size(shape, tile_tokens);
  const auto memory =
      context.workspace->take<float>(memory_size * static_cast<std::size_t>(thread_count()));
  parallel_each(tiles.size(), [&](std::size_t i, int thread) {
    TileRunner(shape, tile_tokens,
               memory.subspan(static_cast<std::size_t>(thread) * memory_size, memory_size))
        .run(tiles[i]);
  });
}

}  // namespace winnow::ops
