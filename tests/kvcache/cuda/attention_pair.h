// Attention on both devices over the caches of a CachePair.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <vector>

#include "kvcache/attend.h"
#include "kvcache/cuda/cache_pair.h"
#include "kvcache/cuda/quest/quest.h"
#include "kvcache/cuda/score_eviction/rounds.h"
#include "kvcache/cuda/score_eviction/score_eviction.h"
#include "kvcache/cuda/token_attention.h"
#include "ops/context.h"

namespace winnow::kvcache::cuda::testing {

inline constexpr int kMostBatch = 3;

/// Compares what queries see with the host's append_and_attend().
class AttentionPair : public CachePair {
 public:
  explicit AttentionPair(const Case& c)
      : CachePair(c), attention_(device(), kMostBatch), quest_(make_quest()) {
    if (device().drops_each()) {
      score_eviction_.emplace(device(), 1, nullptr);
    } else if (device().drops()) {
      rounds_.emplace(device());
    }
  }

  // One token of each sequence: in a step, unless prefill has to take it.
  void step(std::span<Sequence*> sequences) {
    std::vector<Sequence*> together;
    for (Sequence* sequence : sequences) {
      if (device().steps_next(sequence->slot)) {
        together.push_back(sequence);
      } else {
        take_piece(*sequence, 1);
      }
    }
    if (!together.empty()) {
      step_together(together);
    }
  }

  // A step with one token of each sequence.
  void step_together(std::span<Sequence*> sequences) {
    std::vector<std::int32_t> slots;
    for (const Sequence* sequence : sequences) {
      slots.push_back(sequence->slot);
    }
    const DeviceBuffer<std::int32_t> device_slots{std::span<const std::int32_t>(slots)};
    const int batch = static_cast<int>(sequences.size());
    const Projection how = projection(batch);
    attention_.reserve();
    attention_.plan(device_slots.data(), batch, stream());
    for (int layer = 0; layer < kLayers; ++layer) {
      std::vector<float> all;
      std::vector<float> expected;
      for (Sequence* sequence : sequences) {
        const auto x = products(*sequence, layer, device().length(sequence->slot));
        all.insert(all.end(), x.begin(), x.end());
        const auto out = on_host(*sequence, layer, {x}, nullptr);
        expected.insert(expected.end(), out.begin(), out.end());
      }
      const DeviceBuffer<float> qkv{std::span<const float>(all)};
      DeviceBuffer<float> queries(expected.size());
      DeviceBuffer<bf16> out(expected.size());
      out.fill(0xFF);
      attention_.append_and_attend(how,
                                   {.layer = layer,
                                    .batch = batch,
                                    .slots = device_slots.data(),
                                    .qkv = qkv.data(),
                                    .queries = queries.data()},
                                   scale(), out.data(), stream());
      expect_close(out, expected);
    }
    for (const std::int32_t slot : slots) {
      advance(device(), slot, 1, stream());
    }
  }

  // Takes tokens of one sequence whose queries may not all see everything. With chunked attention,
  // one chunk after another; if queries choose pages beside a window, one token.
  void chunk(Sequence& sequence, int tokens) {
    while (tokens > 0) {
      const int reach = shape_.chunked ? shape_.reach.back() : tokens;
      const int length = device().length(sequence.slot);
      const int piece = config_.traits().marks
                            ? 1
                            : std::min(tokens, shape_.chunked ? reach - length % reach : tokens);
      take_piece(sequence, piece);
      tokens -= piece;
    }
  }

 private:
  void take_piece(Sequence& sequence, int tokens) {
    const Band band(device(), tokens);
    const Projection how = projection(tokens);
    const int length = device().length(sequence.slot);
    for (int layer = 0; layer < kLayers; ++layer) {
      std::vector<std::vector<float>> rows;
      std::vector<bf16> all;
      for (int t = 0; t < tokens; ++t) {
        rows.push_back(products(sequence, layer, length + t));
        std::ranges::transform(rows.back(), std::back_inserter(all), to_bf16);
      }
      std::vector<std::int32_t> seen;
      const auto expected = on_host(sequence, layer, rows, &seen);
      const DeviceBuffer<bf16> qkv{std::span<const bf16>(all)};
      DeviceBuffer<bf16> queries(expected.size());
      DeviceBuffer<bf16> out(expected.size());
      out.fill(0xFF);
      const PrefillAppend append{layer,  sequence.slot, length,
                                 tokens, {qkv.data()},  queries.data()};
      if (!device().is_full(layer)) {  // attention is the same under any rule
        cuda::append(device(), how, append, band, stream());
        continue;
      }
      if (rounds_) {  // the attention itself is a prompt's, the same under any rule
        take_in_rounds(how, append, band);
        continue;
      }
      if (score_eviction_) {
        score_eviction_->reserve();
        score_eviction_->append_and_attend(how, append, band, logits(), out.data(), stream());
      } else {
        std::vector<std::int32_t> visible(seen.size());
        quest_->reserve();
        cuda::append(device(), how, append, band, stream());
        quest_->renew_bounds(append, stream());
        quest_->attend(append, logits(), out.data(), visible, stream());
        EXPECT_EQ(visible, seen);
      }
      expect_close(out, expected);
    }
    advance(device(), sequence.slot, tokens, stream());
  }

  // Cuts the chunk where entries are dropped.
  void take_in_rounds(const Projection& how, const PrefillAppend& all, const Band& band) {
    const auto dim = static_cast<std::size_t>(shape_.head_dim);
    const auto queries = static_cast<std::size_t>(kKvHeads * shape_.group) * dim;
    rounds_->reserve();
    for (int first = 0; first < all.tokens;) {
      PrefillAppend piece = all;
      piece.length += first;
      piece.tokens = rounds_->rows_together(all.layer, all.slot, piece.length, all.tokens - first);
      piece.qkv.rounded += static_cast<std::size_t>(first) * width_;
      piece.queries += static_cast<std::size_t>(first) * queries;
      cuda::append(device(), how, piece, band, stream());
      rounds_->evict(piece, logits(), stream());
      first += piece.tokens;
    }
    winnow::cuda::check(cudaStreamSynchronize(stream()), "eviction in rounds");
  }

  [[nodiscard]] std::optional<QuestAttention> make_quest() {
    return device().selects() ? std::optional<QuestAttention>(std::in_place, device(), 5, 1)
                              : std::nullopt;
  }
  [[nodiscard]] ops::cuda::AttentionLogits logits() const { return {.scale = scale()}; }
  [[nodiscard]] float scale() const {
    return 1.0F / std::sqrt(static_cast<float>(shape_.head_dim));
  }

  // Takes the tokens on the host; returns their outputs.
  std::vector<float> on_host(Sequence& sequence, int layer, std::vector<std::vector<float>> rows,
                             std::vector<std::int32_t>* seen) {
    const auto dim = static_cast<std::size_t>(shape_.head_dim);
    const auto group = static_cast<std::size_t>(shape_.group);
    const std::size_t heads = kKvHeads * group;
    std::vector<float> parts[3];
    std::vector<std::uint8_t> decisions;
    std::vector<float> logits;
    std::vector<float> omegas;
    for (std::vector<float>& x : rows) {
      for (std::size_t h = 0; h < kKvHeads; ++h) {
        float& query = x[h * group * dim + kChannel];
        float& key = x[(heads + h) * dim + kChannel];
        const bool merges = config_.rule == RuleKind::dmc;
        decisions.push_back((merges ? key : query) > 0.3F ? 1 : 0);
        logits.push_back(logit_of(query));
        omegas.push_back(merges && query <= 0.0F ? 0.5F : 1.0F);
        query = 0.0F;
        key = merges ? 0.0F : key;
      }
      const std::size_t ends[] = {0, heads * dim, (heads + kKvHeads) * dim, x.size()};
      for (int part = 0; part < 3; ++part) {
        parts[part].insert(parts[part].end(), x.begin() + static_cast<std::ptrdiff_t>(ends[part]),
                           x.begin() + static_cast<std::ptrdiff_t>(ends[part + 1]));
      }
    }
    for (std::size_t first = 0; first < parts[0].size() && seen != nullptr && rotated();
         first += dim) {
      round_rotated(std::span(parts[0]).subspan(first, dim));
    }
    std::vector<float> out(rows.size() * heads * dim);
    std::vector<std::int32_t> visible(rows.size() * kKvHeads);
    const LayerChunk chunk{.sequence = &sequence.host,
                           .queries = {parts[0].data(), rows.size(), heads * dim},
                           .keys = {parts[1].data(), rows.size(), kKvHeads * dim},
                           .values = {parts[2].data(), rows.size(), kKvHeads * dim},
                           .out = {out.data(), rows.size(), heads * dim},
                           .decisions = {decisions.data(), rows.size(), kKvHeads},
                           .logits = {logits.data(), rows.size(), kKvHeads},
                           .omegas = {omegas.data(), rows.size(), kKvHeads},
                           .visible = {visible.data(), rows.size(), kKvHeads}};
    ops::Workspace workspace;
    ops::Context context{DType::f32, true, &workspace};
    append_and_attend(context, layer, std::span(&chunk, 1));
    if (seen != nullptr) {
      *seen = visible;
    }
    return out;
  }

  // A chunk's queries are rotated, then rounded to bf16.
  static void round_rotated(std::span<float> query) {
    ops::rotate(query);
    std::ranges::transform(query, query.begin(), [](float x) { return to_float(to_bf16(x)); });
    ops::rotate_back(query);
  }

  // A row is the output of one query head. Bounds of pages are sums whose last bit depends on their
  // order, so that in a near tie a head may read another page than on the host. Many heads choose
  // beside a window: one of them may.
  void expect_close(const DeviceBuffer<bf16>& out, const std::vector<float>& expected) {
    winnow::cuda::check(cudaStreamSynchronize(stream()), "attention");
    std::vector<bf16> got(expected.size());
    out.read(got);
    const auto dim = static_cast<std::size_t>(shape_.head_dim);
    const bool may_choose_others = config_.traits().marks && config_.traits().selects;
    int others = 0;
    double error = 0.0;
    double norm = 0.0;
    for (std::size_t first = 0; first < got.size(); first += dim) {
      double own_error = 0.0;
      double own_norm = 0.0;
      for (std::size_t i = first; i < first + dim; ++i) {
        own_error += std::pow(to_float(got[i]) - expected[i], 2.0);
        own_norm += std::pow(expected[i], 2.0);
      }
      const bool is_other = may_choose_others && std::sqrt(own_error / own_norm) > 0.05;
      others += is_other ? 1 : 0;
      error += is_other ? 0.0 : own_error;
      norm += own_norm;
    }
    EXPECT_LE(std::sqrt(error / norm), 3e-3);  // the error of rounding the output
    EXPECT_LE(others, 1) << "query heads that read other pages";
  }

  TokenAttention attention_;
  std::optional<QuestAttention> quest_;
  std::optional<ScoreEvictionAttention> score_eviction_;
  std::optional<RoundEviction> rounds_;
};

}  // namespace winnow::kvcache::cuda::testing
