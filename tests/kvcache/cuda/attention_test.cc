// Every rule's attention on the device, compared with the host's append_and_attend(): what queries
// see, and what stays in the cache.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kvcache/attend.h"
#include "kvcache/cuda/cache_pair.h"
#include "kvcache/cuda/token_attention.h"
#include "ops/context.h"

namespace winnow::kvcache::cuda {
namespace {

using testing::CachePair;
using testing::Case;
using testing::kChannel;
using testing::kKvHeads;
using testing::kLayers;
using winnow::cuda::DeviceBuffer;

constexpr int kMostBatch = 3;

class AttentionPair : public CachePair {
 public:
  explicit AttentionPair(const Case& c)
      : CachePair(c), attention_(device(), kMostBatch), quest_(make_quest()) {
    if (device().drops()) {
      score_eviction_.emplace(device(), 1);
    }
  }

  // A step with one token of each sequence; in reverse order on the device.
  void step(std::span<Sequence*> sequences) {
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
  // one chunk after another.
  void chunk(Sequence& sequence, int tokens) {
    while (tokens > 0) {
      const int reach = shape_.chunked ? shape_.reach.back() : tokens;
      const int length = device().length(sequence.slot);
      const int piece = std::min(tokens, shape_.chunked ? reach - length % reach : tokens);
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
    std::vector<float> omegas;
    for (std::vector<float>& x : rows) {
      for (std::size_t h = 0; h < kKvHeads; ++h) {
        float& query = x[h * group * dim + kChannel];
        float& key = x[(heads + h) * dim + kChannel];
        const bool merges = config_.rule == RuleKind::dmc;
        decisions.push_back((merges ? key : query) > 0.3F ? 1 : 0);
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
                           .logits = {},
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

  void expect_close(const DeviceBuffer<bf16>& out, const std::vector<float>& expected) {
    winnow::cuda::check(cudaStreamSynchronize(stream()), "attention");
    std::vector<bf16> got(expected.size());
    out.read(got);
    double error = 0.0;
    double norm = 0.0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      error += std::pow(to_float(got[i]) - expected[i], 2.0);
      norm += std::pow(expected[i], 2.0);
    }
    EXPECT_LE(std::sqrt(error / norm), 3e-3);  // the error of rounding the output
  }

  TokenAttention attention_;
  std::optional<QuestAttention> quest_;
  std::optional<ScoreEvictionAttention> score_eviction_;
};

class CudaTokenAttention : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (winnow::cuda::device_count() == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
  }
};

INSTANTIATE_TEST_SUITE_P(
    Cases, CudaTokenAttention,
    ::testing::Values(Case{RuleKind::dense, ops::EntryFormat::bf16, 64, 4},
                      Case{RuleKind::dms, ops::EntryFormat::f8e4m3, 64, 4, 37, 3},
                      Case{RuleKind::streaming, ops::EntryFormat::i8, 80, 3, 0, 1, 5.0},
                      Case{RuleKind::dmc, ops::EntryFormat::f8e4m3, 128, 2},
                      Case{RuleKind::dmc, ops::EntryFormat::bf16, 64, 8},
                      Case{RuleKind::dmc, ops::EntryFormat::i8, 96, 1},
                      Case{RuleKind::tova, ops::EntryFormat::bf16, 64, 4, 0, 1, 8.0},
                      Case{RuleKind::tova, ops::EntryFormat::f8e4m3, 128, 8, 0, 1, 5.0},
                      Case{RuleKind::tova, ops::EntryFormat::i8, 80, 1, 0, 1, 700.0},
                      Case{RuleKind::h2o, ops::EntryFormat::f8e4m3, 64, 4, 0, 1, 8.0},
                      Case{RuleKind::h2o, ops::EntryFormat::bf16, 96, 3, 0, 1, 20.0},
                      Case{RuleKind::h2o, ops::EntryFormat::i8, 128, 2, 0, 1, 4.0},
                      Case{RuleKind::random, ops::EntryFormat::bf16, 64, 4, 0, 1, 8.0},
                      Case{RuleKind::random, ops::EntryFormat::q4, 128, 2, 0, 1, 20.0, 33},
                      Case{RuleKind::vatp, ops::EntryFormat::bf16, 64, 4, 0, 1, 4.0},
                      Case{RuleKind::vatp, ops::EntryFormat::f8e4m3, 128, 8, 0, 1, 5.0, 21},
                      Case{RuleKind::vatp, ops::EntryFormat::i8, 80, 3, 0, 1, 20.0},
                      Case{RuleKind::vatp, ops::EntryFormat::q4, 96, 2, 0, 1, 8.0},
                      Case{RuleKind::quest, ops::EntryFormat::bf16, 64, 4, 0, 1, 4.0},
                      Case{RuleKind::quest, ops::EntryFormat::f8e4m3, 128, 2, 0, 1, 12.0},
                      Case{RuleKind::quest, ops::EntryFormat::i8, 80, 3, 0, 1, 100.0},
                      Case{RuleKind::dense, ops::EntryFormat::bf16, 64, 4, 0, 1, 1.0, 60},
                      Case{RuleKind::dense, ops::EntryFormat::f8e4m3, 128, 2, 0, 1, 1.0, 1},
                      Case{RuleKind::dms, ops::EntryFormat::f8e4m3, 64, 4, 37, 3, 1.0, 20},
                      Case{RuleKind::dms, ops::EntryFormat::bf16, 128, 8, 9, 1, 1.0, 75},
                      Case{RuleKind::streaming, ops::EntryFormat::i8, 80, 3, 0, 1, 5.0, 33},
                      Case{RuleKind::dense, ops::EntryFormat::bf16, 64, 4, 0, 1, 1.0, 60, true},
                      Case{RuleKind::dms, ops::EntryFormat::f8e4m3, 128, 8, 37, 3, 1.0, 21, true},
                      Case{RuleKind::streaming, ops::EntryFormat::i8, 80, 3, 0, 1, 5.0, 1, true},
                      Case{RuleKind::dense, ops::EntryFormat::q4, 64, 4},
                      Case{RuleKind::dms, ops::EntryFormat::q4, 128, 4, 37, 3},
                      Case{RuleKind::streaming, ops::EntryFormat::q4, 80, 3, 0, 1, 5.0},
                      Case{RuleKind::dmc, ops::EntryFormat::q4, 96, 2},
                      Case{RuleKind::tova, ops::EntryFormat::q4, 64, 4, 0, 1, 8.0},
                      Case{RuleKind::h2o, ops::EntryFormat::q4, 128, 3, 0, 1, 4.0},
                      Case{RuleKind::quest, ops::EntryFormat::q4, 64, 4, 0, 1, 12.0},
                      Case{RuleKind::dmc, ops::EntryFormat::f8e4m3, 64, 4, 0, 1, 1.0, 40},
                      Case{RuleKind::dmc, ops::EntryFormat::i8, 80, 3, 0, 1, 1.0, 21, true},
                      Case{RuleKind::tova, ops::EntryFormat::bf16, 64, 4, 0, 1, 8.0, 60},
                      Case{RuleKind::tova, ops::EntryFormat::f8e4m3, 128, 8, 0, 1, 5.0, 21, true},
                      Case{RuleKind::h2o, ops::EntryFormat::q4, 64, 3, 0, 1, 8.0, 33},
                      Case{RuleKind::h2o, ops::EntryFormat::i8, 80, 2, 0, 1, 4.0, 48, true},
                      Case{RuleKind::quest, ops::EntryFormat::bf16, 64, 4, 0, 1, 4.0, 33},
                      Case{RuleKind::quest, ops::EntryFormat::f8e4m3, 128, 2, 0, 1, 12.0, 60,
                           true}),
    testing::name_of);

// Shapes that the kernels built for a head dimension do not support.
INSTANTIATE_TEST_SUITE_P(
    OtherShapes, CudaTokenAttention,
    ::testing::Values(Case{RuleKind::dmc, ops::EntryFormat::bf16, 64, 71},
                      Case{RuleKind::dmc, ops::EntryFormat::q4, 48, 3, 0, 1, 1.0, 40},
                      Case{RuleKind::tova, ops::EntryFormat::bf16, 256, 8, 0, 1, 8.0},
                      Case{RuleKind::tova, ops::EntryFormat::f8e4m3, 16, 16, 0, 1, 5.0, 60},
                      Case{RuleKind::tova, ops::EntryFormat::q4, 40, 3, 0, 1, 8.0},
                      Case{RuleKind::h2o, ops::EntryFormat::i8, 48, 2, 0, 1, 8.0},
                      Case{RuleKind::h2o, ops::EntryFormat::bf16, 64, 71, 0, 1, 20.0},
                      Case{RuleKind::h2o, ops::EntryFormat::f8e4m3, 512, 2, 0, 1, 4.0, 33},
                      Case{RuleKind::random, ops::EntryFormat::i8, 48, 3, 0, 1, 8.0, 40},
                      Case{RuleKind::vatp, ops::EntryFormat::bf16, 256, 2, 0, 1, 8.0},
                      Case{RuleKind::vatp, ops::EntryFormat::q4, 40, 3, 0, 1, 5.0},
                      Case{RuleKind::quest, ops::EntryFormat::bf16, 256, 8, 0, 1, 4.0},
                      Case{RuleKind::quest, ops::EntryFormat::q4, 48, 3, 0, 1, 12.0, 21, true},
                      Case{RuleKind::quest, ops::EntryFormat::i8, 64, 71, 0, 1, 8.0},
                      Case{RuleKind::quest, ops::EntryFormat::f8e4m3, 512, 2, 0, 1, 4.0}),
    testing::name_of);

TEST_P(CudaTokenAttention, SeesWhatTheHostSees) {
  AttentionPair caches(GetParam());
  std::vector<CachePair::Sequence> sequences;
  for (std::uint64_t seed = 1; seed <= kMostBatch; ++seed) {
    const int tokens = 200 + 50 * static_cast<int>(seed);
    sequences.push_back(caches.open(seed, {20 * static_cast<int>(seed), tokens}));
  }
  std::vector<CachePair::Sequence*> batch{&sequences[2], &sequences[0], &sequences[1]};
  for (int t = 0; t < 130; ++t) {
    ASSERT_NO_FATAL_FAILURE(caches.step(batch)) << t;
    if (t % 60 == 20) {
      batch.pop_back();  // so lengths differ
    }
  }
  if (caches.device().drops() || caches.device().selects()) {
    caches.chunk(sequences[1], 37);
    caches.chunk(sequences[2], 1);
    caches.chunk(sequences[2], 64);
  }
  std::vector<CachePair::Sequence*> all{&sequences[0], &sequences[1], &sequences[2]};
  for (int t = 0; t < 10; ++t) {
    caches.step(all);
  }
  for (const CachePair::Sequence& sequence : sequences) {
    caches.expect_same(sequence);
  }
}

// A fork continues independently, even if entries are dropped from the archive.
TEST_P(CudaTokenAttention, ForksGoOnByThemselves) {
  AttentionPair caches(GetParam());
  std::vector<CachePair::Sequence> sequences;
  sequences.reserve(2);
  sequences.push_back(caches.open(1, {30, 250}));
  std::vector<CachePair::Sequence*> one{sequences.data()};
  for (int t = 0; t < 75; ++t) {
    caches.step(one);
  }
  sequences.push_back(caches.fork(sequences[0], 2));
  std::vector<CachePair::Sequence*> both{&sequences[1], &sequences[0]};
  for (int t = 0; t < 40; ++t) {
    caches.step(both);
  }
  caches.expect_pages_accounted(sequences);
  for (const CachePair::Sequence& sequence : sequences) {
    caches.expect_same(sequence);
    caches.close(sequence);
  }
  EXPECT_EQ(caches.pages_in_use(), 0U);
}

}  // namespace
}  // namespace winnow::kvcache::cuda
