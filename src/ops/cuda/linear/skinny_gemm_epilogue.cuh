// The warps of the skinny GEMM kernel that finish tiles: they sum over the product warps and use
// the sums.
#pragma once

#include <cuda_bf16.h>

#include "ops/cuda/linear/skinny_gemm_argmax.cuh"
#include "ops/cuda/linear/skinny_gemm_fetch.cuh"
#include "parallel/cuda/row_exchange.cuh"

namespace winnow::ops::cuda {

/// Thread t finishes sum t of each tile and, with more than 8 batch rows, sum t + 128. With one
/// row, each warp finishes whole tiles of the block, round-robin, so the duration of a single tile
/// does not matter.
template <class Format, int kMostRows, class Attention, class Program>
class Epilogue {
 public:
  using Shared = SkinnyShared<kMostRows>;
  using Share = LayerShare<Format>;

  __device__ Epilogue(const Program& program, Shared& shared, const SkinnyRings& rings)
      : program_(program),
        shared_(shared),
        rings_(rings),
        choice_(program, shared),
        thread_(threadIdx.x - 32 * kProductWarps),
        lane_(threadIdx.x % 32) {
    if constexpr (kAlone) {
      row_ = lane_ % 16;
      batch_ = lane_ / 16;
    } else {
      // Accumulator `thread_ % 4` of lane `thread_ / 4`.
      row_ = thread_ / 16 + thread_ / 2 % 2 * 8;
      batch_ = thread_ / 4 % 4 * 2 + thread_ % 2;
    }
  }

  __device__ void run() {
    const bool publishes = program_.count > 1;
    const PublishPhase phase =
        publishes ? begin_phase(program_, thread_, 32 * kEpilogueWarps) : PublishPhase{};
    Share share(program_, rings_);
    do {
      use_published(program_, share.number, phase.memory, share.layer);
      const int own = kAlone ? thread_ / 32 : 0;  // this thread's tile among kTileGroups
      prepare(share, share.first + own * share.step);
      load_norms(share);
      std::uint64_t best[kBatches] = {};
      for (int tile = share.first, i = 0; tile < share.tiles; tile += share.step, ++i) {
        if (i % kTileGroups == own) {
          finish_tile(share, tile, best);
        }
        sums_.advance(Shared::kSumSlots);
      }
      if (share.layer.epilogue == SkinnyGemm::Epilogue::argmax) {
        put_best(best);
        choice_.run(share.layer, thread_);
      }
      synchronize();  // norms may be replaced by the next layer's
    } while (share.next(program_, rings_));
    if (publishes) {
      end_phase(program_, phase, thread_);
    }
  }

 private:
  static constexpr int kBatches = SkinnyRows<kMostRows>::kBatches;
  static constexpr bool kAlone = SkinnyRows<kMostRows>::kTileWarps == 1;
  static constexpr int kTileGroups = kEpilogueWarps / SkinnyRows<kMostRows>::kTileWarps;
  static constexpr int kSumsAtOnce = 4;

  struct Place {
    bool inside = false;
    std::size_t at = 0;          // index in the result, [rows, results]
    std::size_t rounded_at = 0;  // index in the next layer's input
    int index = 0;
    float scale = 1.0F;
    float bias = 0.0F;
    float hidden = 0.0F;
    float norm_weight = 0.0F;
    std::uint32_t epoch = 0;  // for sums over ranks
  };

  // Synchronises the warps of this class.
  static __device__ void synchronize() { sync_named(kEpilogueBarrier, 32 * kEpilogueWarps); }

  // Loads 1 / RMS of each row of the input.
  __device__ void load_norms(const Share& share) const {
    const SkinnyGemm& layer = share.layer;
    const SkinnyInput& input = layer.input;
    const bool published = share.number > 0 && input.parts > 0;
    float sums[kRowsOfWarp] = {};
    if (share.first < share.tiles && row_of_warp(0) < program_.rows) {
      if (published) {
        wait_for(&input.square_sums[input.parts * program_.rows - 1]);
      }
      for (int first = lane_; first < input.parts; first += 32 * kSumsAtOnce) {
        float x[kRowsOfWarp][kSumsAtOnce];
        read_sums(input, first, x);
        while (published && unpublished(x)) {
          read_sums(input, first, x);
        }
#pragma unroll
        for (int i = 0; i < kRowsOfWarp; ++i) {
#pragma unroll
          for (const float part : x[i]) {
            sums[i] += part;
          }
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kRowsOfWarp; ++i) {
      float sum = sums[i];
#pragma unroll
      for (int step = 16; step > 0; step /= 2) {
        sum += __shfl_xor_sync(0xFFFFFFFFU, sum, step);
      }
      if (lane_ == 0 && row_of_warp(i) < program_.rows) {
        const float mean = sum / static_cast<float>(layer.linear.weight.cols);
        shared_.norms[row_of_warp(i)] = input.parts > 0 ? rsqrtf(mean + input.eps) : 1.0F;
      }
    }
    synchronize();
  }

  // Rows of the input per warp whose norms it computes.
  static constexpr int kRowsOfWarp = (kMostRows + kEpilogueWarps - 1) / kEpilogueWarps;
  [[nodiscard]] __device__ int row_of_warp(int i) const {
    return thread_ / 32 + i * kEpilogueWarps;
  }

  // Waits for this value before it reads others.
  __device__ void wait_for(const float* last) const {
    if (lane_ == 0) {
      while (ops::cuda::unpublished(read_published(last))) {
      }
    }
    __syncwarp();
  }

  // Reads every 32nd of the parts from `first` on, zeros past the last one.
  __device__ void read_sums(const SkinnyInput& input, int first,
                            float (&x)[kRowsOfWarp][kSumsAtOnce]) const {
#pragma unroll
    for (int i = 0; i < kRowsOfWarp; ++i) {
      const int row = row_of_warp(i);
#pragma unroll
      for (int j = 0; j < kSumsAtOnce; ++j) {
        const int part = first + 32 * j;
        x[i][j] = part < input.parts && row < program_.rows
                      ? read_published(&input.square_sums[part * program_.rows + row])
                      : 0.0F;
      }
    }
  }
  static __device__ bool unpublished(const float (&x)[kRowsOfWarp][kSumsAtOnce]) {
    bool some = false;
#pragma unroll
    for (const auto& of_row : x) {
#pragma unroll
      for (const float part : of_row) {
        some = some || ops::cuda::unpublished(part);
      }
    }
    return some;
  }

  __device__ void finish_tile(const Share& share, int tile, std::uint64_t (&best)[kBatches]) {
    shared_.sums_full[sums_.slot].wait(sums_.parity);
    float sums[kBatches];
#pragma unroll
    for (int i = 0; i < kBatches; ++i) {
      sums[i] = 0.0F;
#pragma unroll
      for (int warp = 0; warp < kTeamWarps; ++warp) {
        sums[i] += part(shared_.sums[sums_.slot][warp], i);
      }
      if (!share.apart) {
#pragma unroll
        for (int warp = kTeamWarps; warp < kProductWarps; ++warp) {
          sums[i] += part(shared_.sums[sums_.slot][warp], i);
        }
      }
    }
    __syncwarp();
    if (lane_ == 0) {
      shared_.sums_empty[sums_.slot].arrive();
    }
    float squares[kBatches] = {};
#pragma unroll
    for (int i = 0; i < kBatches; ++i) {
      squares[i] = finish(share, places_[i], batch_ + 8 * i, sums[i], best[i]);
    }
    if (share.layer.epilogue == SkinnyGemm::Epilogue::residual) {
      put_squares(share.layer, tile, squares);
    }
    prepare(share, tile + kTileGroups * share.step);
  }

  // A warp's part of this thread's sum.
  [[nodiscard]] __device__ float part(const float (&of_warp)[Shared::kSums], int i) const {
    if constexpr (kInIntegers<Format, kMostRows>) {
      const float4 x = *reinterpret_cast<const float4*>(&of_warp[4 * row_]);
      return (x.x + x.y) + (x.z + x.w);
    } else if constexpr (kAlone) {
      return of_warp[row_];
    } else {
      return of_warp[thread_ + 128 * i];
    }
  }

  __device__ void prepare(const Share& share, int tile) {
#pragma unroll
    for (int i = 0; i < kBatches; ++i) {
      places_[i] = prepare(share, tile, batch_ + 8 * i);
    }
  }

  // Fetches the values that a sum will be combined with.
  __device__ Place prepare(const Share& share, int tile, int batch) const {
    const SkinnyGemm& layer = share.layer;
    Place place;
    place.index = share.index(tile, row_);
    place.inside = place.index < share.limit() && batch < program_.rows;
    if (!place.inside) {
      return place;
    }
    place.at = static_cast<std::size_t>(batch) * share.limit() + place.index;
    place.rounded_at = share.number + 1 < program_.count && kMostRows > 1
                           ? published_offset<Format>(program_.rows, batch, place.index)
                           : place.at;
    const int row = share.row(tile, row_);
    if constexpr (Format::kFormat == DeviceWeightFormat::fp8) {
      place.scale = layer.linear.weight.row_scales[row];
    }
    if (layer.linear.bias != nullptr) {
      place.bias = layer.linear.bias[row];
    }
    if (layer.epilogue == SkinnyGemm::Epilogue::residual) {
      place.hidden = __ldcg(&layer.residual.hidden[place.at]);
      place.norm_weight = layer.residual.norm_weight[row];
      if (layer.ranks.inboxes != nullptr) {
        place.epoch = parallel::cuda::epoch_of(*layer.ranks.inboxes, layer.ranks.number);
      }
    }
    return place;
  }

  // Returns the square of the residual stream's new value.
  __device__ float finish(const Share& share, const Place& place, int batch, float sum,
                          std::uint64_t& best) const {
    const SkinnyGemm& layer = share.layer;
    const float norm = batch < program_.rows ? shared_.norms[batch] : 0.0F;
    const float value = sum * (place.scale * kSumUnit<Format, kMostRows>)*norm + place.bias;
    const float partner = __shfl_xor_sync(0xFFFFFFFFU, value, kAlone ? 8 : 2);  // row_ + 8's value
    if (!place.inside) {
      return 0.0F;
    }
    switch (layer.epilogue) {
      case SkinnyGemm::Epilogue::store:
        publish(&layer.values[place.at], value);
        break;
      case SkinnyGemm::Epilogue::silu:
        if (row_ < 8) {
          publish(&layer.activated[place.rounded_at],
                  round(__fdividef(value, 1.0F + __expf(-value)) * partner));
        }
        break;
      case SkinnyGemm::Epilogue::residual: {
        const float sum_of_ranks =
            layer.ranks.inboxes == nullptr
                ? value
                : parallel::cuda::sum_over_ranks(*layer.ranks.inboxes, layer.ranks.number,
                                                 place.epoch, place.at, value);
        const float hidden = place.hidden + sum_of_ranks;
        layer.residual.hidden[place.at] = hidden;
        if (layer.residual.kept != nullptr) {
          const std::size_t kept_at = std::size_t(batch) * layer.residual.kept_stride + place.index;
          layer.residual.kept[kept_at] = hidden;
        }
        publish(&layer.residual.normed[place.rounded_at], round(hidden * place.norm_weight));
        return hidden * hidden;
      }
      case SkinnyGemm::Epilogue::argmax:
        if (layer.values != nullptr) {
          layer.values[place.at] = value;
        }
        best = larger(best, argmax_key(value, place.index));
        break;
    }
    return 0.0F;
  }

  static __device__ bf16 round(float x) {
    return {__bfloat16_as_ushort(__float2bfloat16_rn(x))};
  }

  // Whether this is the first of the lanes of one batch row.
  __device__ bool leads() const {
    return kAlone ? lane_ == 0 : (lane_ & 0b10010) == 0;
  }

  // Stores the tile's sum of squares of each batch row, with its rows always in the same order.
  __device__ void put_squares(const SkinnyGemm& layer, int tile,
                              const float (&squares)[kBatches]) const {
    if constexpr (kAlone) {
      put_squares_alone(layer, tile, squares[0]);
      return;
    }
    auto& parts = reinterpret_cast<float(&)[kEpilogueWarps][kMostSkinnyRows]>(shared_.parts);
#pragma unroll
    for (int i = 0; i < kBatches; ++i) {
      float sum = squares[i];
      sum += __shfl_xor_sync(0xFFFFFFFFU, sum, 2);
      sum += __shfl_xor_sync(0xFFFFFFFFU, sum, 16);
      if (leads()) {
        parts[thread_ / 32][batch_ + 8 * i] = sum;
      }
    }
    synchronize();
    if (thread_ < program_.rows) {
      float sum = 0.0F;
      for (const auto& part : parts) {
        sum += part[thread_];
      }
      publish(&layer.residual.square_sums[tile * program_.rows + thread_], sum);
    }
    synchronize();
  }

  // The same, by one warp.
  __device__ void put_squares_alone(const SkinnyGemm& layer, int tile, float squares) const {
    squares += __shfl_xor_sync(0xFFFFFFFFU, squares, 8);
    squares += __shfl_xor_sync(0xFFFFFFFFU, squares, 1);
    float sum = 0.0F;
#pragma unroll
    for (int row = 0; row < 8; row += 2) {
      sum += __shfl_sync(0xFFFFFFFFU, squares, row);
    }
    if (lane_ == 0) {
      publish(&layer.residual.square_sums[tile], sum);
    }
  }

  // Stores each warp's best of each batch row.
  __device__ void put_best(const std::uint64_t (&best)[kBatches]) const {
#pragma unroll
    for (int i = 0; i < kBatches; ++i) {
      std::uint64_t own = best[i];
#pragma unroll
      for (int step = kAlone ? 8 : 16; step > 0; step /= kAlone ? 2 : 8) {
        own = larger(own, __shfl_xor_sync(0xFFFFFFFFU, own, step));
      }
      if (leads()) {
        shared_.parts[thread_ / 32][batch_ + 8 * i] = own;
      }
    }
    synchronize();
  }

  const Program& program_;
  Shared& shared_;
  const SkinnyRings& rings_;
  ArgmaxAcrossBlocks<Attention, kMostRows, Program> choice_;
  int thread_;
  int lane_;
  int row_;
  int batch_;
  RingPlace sums_;
  Place places_[kBatches];  // for the next tile
};

}  // namespace winnow::ops::cuda
