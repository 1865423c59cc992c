// The pipeline of attention on Hopper, for prefill and for training's forward pass. Blocks are
// persistent and take tiles of queries as they become free. In a block
//   warpgroups 0 .. kConsumers - 1 hold 64 query rows each: whole warpgroups compute scores and
//     outputs as products (wgmma), and while one warpgroup computes exponentials another one
//     multiplies;
//   the last warpgroup loads their data: keys and values, kStages blocks ahead, and the queries of
//     the next tile.
// A warpgroup issues a block's scores and the previous block's outputs together, and computes the
// exponentials of one while the products of the other are in flight (FlashAttention-3's scheme:
// Shah et al. 2024).
#pragma once

#include "ops/cuda/hopper_tile.cuh"
#include "ops/cuda/score_tile.cuh"

namespace winnow::ops::cuda {

/// Shared memory besides the matrices. A tile with `head` -1 means that there are no more.
template <class S, class Tile>
struct AttentionControl {
  Barrier query_full[2];
  Barrier query_empty[2];
  Barrier key_full[S::kStages];
  Barrier key_empty[S::kStages];
  Barrier value_full[S::kStages];
  Barrier value_empty[S::kStages];
  Tile tile[2];

  /// `feeders`: threads that arrive when a tile's queries are loaded; `readers`: warps that read
  /// tiles besides the consumers.
  __device__ void init(int feeders, int readers) {
    constexpr int kWarps = 4 * S::kConsumers;
    for (int i = 0; i < 2; ++i) {
      query_full[i].init(feeders);
      query_empty[i].init(kWarps + readers);
    }
    for (int i = 0; i < S::kStages; ++i) {
      key_full[i].init(1);
      key_empty[i].init(kWarps);
      value_full[i].init(1);
      value_empty[i].init(kWarps);
    }
    fence_async_proxy();
  }
};

/// A block's shared memory: queries of two tiles, blocks of keys and values, Control.
template <class S, class Control>
struct AttentionShared {
  std::byte* memory;
  __device__ std::byte* query(int slot) const { return memory + slot * S::kQueryBytes; }
  __device__ std::byte* keys(int stage) const { return query(2) + 2 * stage * S::kPartBytes; }
  __device__ std::byte* values(int stage) const { return keys(stage) + S::kPartBytes; }
  __device__ Control& control() const { return *reinterpret_cast<Control*>(keys(S::kStages)); }
  static constexpr int kAlignment = 1024;
  static constexpr int kBytes = 2 * S::kQueryBytes + 2 * S::kStages * S::kPartBytes +
                                static_cast<int>(sizeof(Control)) + kAlignment;
};

/// A warpgroup's attention for its 64 rows of each tile. `Work` is the part that differs:
///   kBias                     whether scores start from begin_scores() instead of zeros
///   scale()                   of the scores, times log2(e)
///   take(tile)                the tile whose scores are begun next
///   enter(tile)               the tile that is processed next
///   last_block()              of that tile; blocks are processed last to first
///   first_block()
///   begin_scores(stage, block, scores)   for the tile that was taken last
///   edges(stage, block, scores)          masks a block; edges_if_any() checks first if it must
///   leave()                   from here on the taken tile is not the stored one
///   store(out, softmax)
template <class S, class Work, class Arguments, class Shared, int kFirstIssue>
class AttentionConsumer {
 public:
  __device__ AttentionConsumer(const Arguments& arguments, const Shared& shared)
      : shared_(shared),
        warpgroup_(threadIdx.x / kWarpgroup),
        work_(arguments, shared, warpgroup_) {
    if (warpgroup_ == S::kConsumers - 1) {
      pass_issue();
    }
  }

  // Products are issued one block ahead of the softmax, across tiles as well: a tile's last outputs
  // are issued with the first scores of the next tile.
  __device__ __forceinline__ void run() {
    if (!await_tile()) {
      return;
    }
    work_.take(tile());
    control().key_full[pipe_.stage].wait(pipe_.parity);
    float scores[S::kBlock / 2];
    work_.begin_scores(pipe_.stage, scores);
    begin_scores(scores);
    for (bool more = true; more;) {
      work_.enter(tile());
      std::uint32_t weights[S::kBlock / 4];
      SoftmaxRows softmax;
      wait_for_products<0>(scores);
      float out[S::D / 2];
      clear(out);
      attend(scores, weights, out, softmax);
      release(control().query_empty[query_.stage]);
      query_.next();
      more = await_tile();
      const PipelineState<S::kStages> before = pipe_;
      pipe_.next();
      work_.leave();
      if (more) {
        work_.take(tile());
        control().key_full[pipe_.stage].wait(pipe_.parity);
      }
      work_.begin_scores(pipe_.stage, scores);
      control().value_full[before.stage].wait(before.parity);
      await_issue();
      begin_weighted_sum<typename S::Pair>(out, weights, shared_.values(before.stage));
      begin_scores(scores);  // on stale data if there is no next tile: a branch costs more
      pass_issue();
      wait_for_products<1>(out);
      release(control().value_empty[before.stage]);
      work_.store(out, softmax);
    }
    wait_for_products<0>(scores);
  }

 private:
  // Warpgroups issue products in turns, so that they do not all compute exponentials at the same
  // time.
  __device__ void await_issue() const { sync_named(kFirstIssue + warpgroup_, 2 * kWarpgroup); }
  __device__ void pass_issue() const {
    arrive_named(kFirstIssue + (warpgroup_ + 1) % S::kConsumers, 2 * kWarpgroup);
  }

  __device__ auto& control() const { return shared_.control(); }
  __device__ const auto& tile() const { return control().tile[query_.stage]; }

  // Returns false if there are no more tiles.
  __device__ bool await_tile() const {
    control().query_full[query_.stage].wait(query_.parity);
    return control().tile[query_.stage].head >= 0;
  }

  // Issues the scores of the next block.
  __device__ __forceinline__ void begin_scores(float (&scores)[S::kBlock / 2]) const {
    begin_product<typename S::Pair, S::D, Work::kBias>(
        scores, shared_.query(query_.stage) + warpgroup_ * 64 * kSlabBytes, S::kRows,
        shared_.keys(pipe_.stage));
  }

  // Processes a tile from its first block's scores to its last block's weights.
  __device__ __forceinline__ void attend(float (&scores)[S::kBlock / 2],
                                         std::uint32_t (&weights)[S::kBlock / 4],
                                         float (&out)[S::D / 2], SoftmaxRows& softmax) {
    float factor[2];
    int block = work_.last_block();
    if constexpr (!Work::kBias) {
      release(control().key_empty[pipe_.stage]);
    }
    work_.edges(pipe_.stage, block, scores);  // not all queries see the newest token
    if constexpr (Work::kBias) {
      release(control().key_empty[pipe_.stage]);  // the bias, loaded with the keys, was read
    }
    softmax.weigh(scores, work_.scale(), factor);
    to_operands<typename S::Pair>(scores, weights);
    for (--block; block >= work_.first_block(); --block) {
      attend_block(block, scores, weights, out, softmax);
    }
  }

  // The scores and weights of one block, and the outputs of the previous one, whose products are in
  // flight while the exponentials are computed. There is no branch in between: the compiler waits
  // for products where control flow merges.
  __device__ __forceinline__ void attend_block(int block, float (&scores)[S::kBlock / 2],
                                               std::uint32_t (&weights)[S::kBlock / 4],
                                               float (&out)[S::D / 2], SoftmaxRows& softmax) {
    const PipelineState<S::kStages> before = pipe_;
    pipe_.next();
    if constexpr (Work::kBias) {
      control().key_full[pipe_.stage].wait(pipe_.parity);
      work_.begin_scores(pipe_.stage, block, scores);
      control().value_full[before.stage].wait(before.parity);
    } else {
      control().value_full[before.stage].wait(before.parity);
      control().key_full[pipe_.stage].wait(pipe_.parity);
    }
    await_issue();
    begin_scores(scores);
    begin_weighted_sum<typename S::Pair>(out, weights, shared_.values(before.stage));
    pass_issue();
    wait_for_products<1>(scores);
    if constexpr (!Work::kBias) {
      release(control().key_empty[pipe_.stage]);
    }
    work_.edges_if_any(pipe_.stage, block, scores);
    if constexpr (Work::kBias) {
      release(control().key_empty[pipe_.stage]);
    }
    float factor[2];
    const bool grown = softmax.weigh(scores, work_.scale(), factor);
    // ptxas would wait for the outputs before the exponentials. A branch that depends on the
    // sums prevents this; no sum is negative, so it is never taken. The wait returns at once: keys
    // of this stage are loaded again only after values that wait for value_empty[before.stage],
    // released below. Keys loaded earlier, or more stages of values than of keys, could hang here.
    const bool negative = fminf(softmax.sum[0], softmax.sum[1]) < 0.0F;
    control().key_full[pipe_.stage].wait(negative ? pipe_.parity ^ 1 : pipe_.parity);
    wait_for_products<0>(out);
    release(control().value_empty[before.stage]);
    if (grown) {
      multiply_rows(out, factor);
    }
    to_operands<typename S::Pair>(scores, weights);
  }

  const Shared& shared_;
  int warpgroup_;
  Work work_;
  PipelineState<2> query_;          // of the tile
  PipelineState<S::kStages> pipe_;  // of the block whose scores were begun last
};

}  // namespace winnow::ops::cuda
