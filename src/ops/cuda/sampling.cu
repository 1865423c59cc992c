// A row is sampled without sorting it. Its candidates are ordered by a place: their distance from
// the largest logit, then their number. What is wanted is always the first place at which a running
// sum of weights (or of candidates) exceeds a target: a histogram over the leading digits of all
// places says in which digit that is, the next one looks at that digit's candidates only. Sums of
// integers do not depend on the order in which threads add to them.
//
// A row belongs to a cluster of blocks, so that few rows fill the device as well; each block has a
// histogram of its own part of the vocabulary.
#include "base/cuda/launch.cuh"
#include "ops/cuda/sampling.h"
#include "ops/cuda/sampling_histogram.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;
constexpr int kMostTeam = 8;  // blocks of a row; every device with clusters has room for these

struct Shared {
  Histogram histogram;
  Mass warp_mass[kWarps];
  Word warp_best[kWarps];
  Word best;   // of the block
  Word found;  // by the block, 0: nothing
  Mass total;  // of the block's slice of all bins
  Crossing crossing;
};

/// The steps in which places are told apart: by bits [shift, shift + bits), of which at most the
/// lower kBinBits are not zero.
struct Digit {
  int shift;
  int bits;
};
__constant__ const Digit kDigits[] = {{53, 11}, {42, 11}, {32, 10}, {11, 21}, {0, 11}};
static_assert(kMostTokens < 1 << (2 * kBinBits));

class RowSampler {
 public:
  __device__ RowSampler(const float* logits, int vocab, const SampledRow& row, Shared& shared)
      : logits_(logits),
        vocab_(vocab),
        row_(row),
        shared_(shared),
        thread_(static_cast<int>(threadIdx.x)) {}

  __device__ void run(std::int32_t* token) {
    const Word best = find_largest();
    Word place = ~static_cast<std::uint32_t>(best);
    if (best < kNumbers) {
      place = static_cast<std::uint32_t>(kNoToken);
    } else if (row_.rule.octaves > 0.0F && row_.rule.most != 1) {
      largest_ = logit(static_cast<int>(place));
      place = draw();
    }
    if (team_.rank() == 0 && thread_ == 0) {
      *token = static_cast<std::int32_t>(static_cast<std::uint32_t>(place));
      if (row_.seen != nullptr) {
        atomicOr(row_.seen + row_.newest / 32, 1U << (row_.newest % 32));
      }
    }
    team_.synchronize();  // nobody leaves while others read its memory
  }

 private:
  // With the penalty. The CPU's operations, each rounded as there.
  __device__ float logit(int token) const {
    const float x = __ldg(logits_ + token);
    const float penalty = row_.rule.penalty;
    if (penalty == 1.0F || !is_seen(token)) {
      return x;
    }
    return x > 0.0F ? __fdiv_rn(x, penalty) : __fmul_rn(x, penalty);
  }

  __device__ bool is_seen(int token) const {
    return token == row_.newest || (row_.seen[token / 32] >> (token % 32) & 1U) != 0;
  }

  // Calls f(token, logit) for the block's share of the vocabulary, several loads at a time.
  template <class F>
  __device__ void each_token(const F& f) const {
    constexpr int kAtOnce = 4;
    const int step = team_.size() * kThreads;
    for (int first = team_.rank() * kThreads + thread_; first < vocab_; first += kAtOnce * step) {
      float logits[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int token = first + i * step;
        logits[i] = token < vocab_ ? logit(token) : 0.0F;
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (const int token = first + i * step; token < vocab_) {
          f(token, logits[i]);
        }
      }
    }
  }

  // Larger for larger logits and, of equals, for the lower token; less than kNumbers for what is
  // not a number.
  static constexpr Word kNumbers = Word{1} << 32;
  static __device__ Word key(float logit, int token) {
    const std::uint32_t bits = __float_as_uint(logit);
    const std::uint32_t ordered = isnan(logit)                ? 0U
                                  : (bits & 0x80000000U) != 0 ? ~bits
                                                              : bits | 0x80000000U;
    return Word{ordered} << 32 | ~static_cast<std::uint32_t>(token);
  }

  __device__ Word find_largest() const {
    Word best = 0;
    // -0 is no less than 0.
    each_token([&](int token, float x) { best = max(best, key(x + 0.0F, token)); });
    for (int step = 16; step > 0; step /= 2) {
      best = max(best, __shfl_xor_sync(kAllLanes, best, step));
    }
    if (thread_ % 32 == 0) {
      shared_.warp_best[thread_ / 32] = best;
    }
    __syncthreads();
    if (thread_ == 0) {
      for (const Word other : shared_.warp_best) {
        best = max(best, other);
      }
      shared_.best = best;
    }
    team_.synchronize();
    for (int rank = 0; rank < team_.size(); ++rank) {
      best = max(best, team_.of(shared_.best, rank));
    }
    return best;
  }

  // The place of the token that is drawn.
  __device__ Word draw() {
    const TokenRule& rule = row_.rule;
    if (rule.most > 0) {
      last_ = find(
          [&](const Mass&) {
            return Mass{0, static_cast<unsigned>(rule.most) - 1};
          },
          [](const Mass& sum, const Mass& target) { return sum.count > target.count; });
    }
    const auto by_weight = [](const Mass& sum, const Mass& target) {
      return sum.weight > target.weight;
    };
    if (rule.share > 0) {
      last_ = find(
          [&](const Mass& all) {
            return Mass{__umul64hi(all.weight, rule.share), 0};
          },
          by_weight);
    }
    last_ = min(last_, Word{rule.farthest} << 32 | ~0U);
    return find(
        [&](const Mass& all) {
          return Mass{__umul64hi(all.weight, rule.random), 0};
        },
        by_weight);
  }

  // The first place up to which the sum of all candidates exceeds target_of(sum of all), or the
  // last place when even the sum of all does not.
  template <class Target, class Exceeds>
  __device__ Word find(const Target& target_of, const Exceeds& exceeds) {
    Crossing crossing{};
    Mass target;
    int above = 64;  // bits [above, 64) are known
    for (const Digit& digit : kDigits) {
      fill_histogram(crossing.digits, above, digit);
      if (!cross(crossing, target, digit, target_of, exceeds, above == 64)) {
        return last_;
      }
      above = digit.shift;
      crossing = shared_.crossing;
      if (crossing.inside.count == 1) {
        break;
      }
    }
    return locate(crossing.digits, above);
  }

  __device__ Word place_of(int token, float logit) const {
    const std::uint32_t far = distance(logit, largest_, row_.rule.octaves);
    return Word{far} << 32 | static_cast<std::uint32_t>(token);
  }

  static __device__ bool begins_with(Word place, Word digits, int above) {
    return above == 64 || place >> above == digits;
  }

  __device__ bool is_candidate(Word place) const {
    return place <= last_ && (place >> 32) < kNoWeight;
  }

  // The block's candidates whose places begin with `digits`, by the next digit.
  __device__ void fill_histogram(Word digits, int above, const Digit& digit) {
    team_.synchronize();  // everybody has read the last one
    for (int bin = thread_; bin < kBins; bin += kThreads) {
      shared_.histogram.clear(bin);
    }
    __syncthreads();
    each_token([&](int token, float x) {
      const Word place = place_of(token, x);
      if (is_candidate(place) && begins_with(place, digits, above)) {
        shared_.histogram.add(static_cast<int>(place >> digit.shift) & ((1 << digit.bits) - 1),
                              weight(static_cast<std::uint32_t>(place >> 32)));
      }
    });
    team_.synchronize();
  }

  // Adds what the other blocks have to the block's slice of the bins; nobody else reads or writes
  // that. Returns the sum of a thread's share of the slice.
  __device__ Mass gather_slice(int slice) {
    Histogram& own = shared_.histogram;
    Mass sum;
    for (int i = thread_; i < slice; i += kThreads) {
      const int bin = team_.rank() * slice + i;
#pragma unroll
      for (int other = 1; other < kMostTeam; ++other) {
        if (other < team_.size()) {
          own.take(team_.of(own, (team_.rank() + other) % team_.size()), bin);
        }
      }
      sum.add(own.mass(bin));
    }
    return sum;
  }

  // Goes on by a digit. Returns whether the sum exceeds the target anywhere; every thread of every
  // block then finds the outcome in its shared memory.
  template <class Target, class Exceeds>
  __device__ bool cross(const Crossing& so_far, Mass& target, const Digit& digit,
                        const Target& target_of, const Exceeds& exceeds, bool first) {
    const int slice = kBins / team_.size();
    Mass total;
    inclusive_scan(gather_slice(slice), total);
    shared_.total = total;  // all threads write the same
    team_.synchronize();
    if (first) {
      Mass all;
      for (int rank = 0; rank < team_.size(); ++rank) {
        all.add(team_.of(shared_.total, rank));
      }
      target = target_of(all);
    }
    Mass before = so_far.before;
    for (int rank = 0; rank < team_.size(); ++rank) {
      Mass after = before;
      after.add(team_.of(shared_.total, rank));
      if (exceeds(after, target)) {
        cross_slice(so_far, before, target, digit, exceeds, rank, slice);
        return true;
      }
      before = after;
    }
    return false;
  }

  // The bin of block `rank`'s slice in which the sum, `before` the slice, exceeds the target.
  template <class Exceeds>
  __device__ void cross_slice(const Crossing& so_far, Mass before, const Mass& target,
                              const Digit& digit, const Exceeds& exceeds, int rank, int slice) {
    constexpr int kEach = kBins / kThreads;
    const Histogram& histogram = team_.of(shared_.histogram, rank);
    Mass own[kEach];
    Mass sum;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (const int bin = thread_ * kEach + i; bin < slice) {
        own[i] = histogram.mass(rank * slice + bin);
        sum.add(own[i]);
      }
    }
    Mass total;
    const Mass through = inclusive_scan(sum, total);
    before.add({through.weight - sum.weight, through.count - sum.count});
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      Mass after = before;
      after.add(own[i]);
      if (exceeds(after, target) && !exceeds(before, target)) {
        const int bin = rank * slice + thread_ * kEach + i;
        shared_.crossing = {so_far.digits << digit.bits | static_cast<Word>(bin), before, own[i]};
      }
      before = after;
    }
    __syncthreads();
  }

  // Over a block's threads; `total` is the sum of all.
  __device__ Mass inclusive_scan(Mass mass, Mass& total) {
    const int lane = thread_ % 32;
    for (int step = 1; step < 32; step *= 2) {
      const Mass other = shuffle_up(mass, step);
      if (lane >= step) {
        mass.add(other);
      }
    }
    __syncthreads();  // the sums of an earlier call have been read
    if (lane == 31) {
      shared_.warp_mass[thread_ / 32] = mass;
    }
    __syncthreads();
    total = {};
    for (int warp = 0; warp < kWarps; ++warp) {
      if (warp < thread_ / 32) {
        mass.add(shared_.warp_mass[warp]);
      }
      total.add(shared_.warp_mass[warp]);
    }
    return mass;
  }

  // The one candidate whose place begins with `digits`.
  __device__ Word locate(Word digits, int above) {
    if (thread_ == 0) {
      shared_.found = 0;
    }
    __syncthreads();
    each_token([&](int token, float x) {
      const Word place = place_of(token, x);
      if (is_candidate(place) && begins_with(place, digits, above)) {
        shared_.found = place + 1;
      }
    });
    team_.synchronize();
    Word found = 0;
    for (int rank = 0; rank < team_.size(); ++rank) {
      found = max(found, team_.of(shared_.found, rank));
    }
    return found - 1;
  }

  const float* logits_;
  const int vocab_;
  const SampledRow& row_;
  Shared& shared_;
  const int thread_;
  Team team_;
  float largest_ = 0.0F;
  Word last_ = ~Word{0};  // no candidate lies behind this place
};

__global__ void __launch_bounds__(kThreads)
    sample_kernel(const float* logits, int vocab, const SampledRow* rows, int team,
                  std::int32_t* tokens) {
  __shared__ Shared shared;
  const int index = static_cast<int>(blockIdx.x) / team;
  const SampledRow row = rows[index];
  winnow::cuda::wait_for_predecessor();
  winnow::cuda::release_successor();
  RowSampler(logits + static_cast<std::size_t>(index) * vocab, vocab, row, shared)
      .run(tokens + index);
}

__global__ void mark_kernel(std::uint32_t* seen, const std::int32_t* tokens, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) {
    atomicOr(seen + tokens[i] / 32, 1U << (tokens[i] % 32));
  }
}

// Blocks per row: as many as run at once, one on each multiprocessor.
int team_size(int rows) {
  int size = 1;
  while (size < kMostTeam && 2 * size * rows <= winnow::cuda::multiprocessor_count()) {
    size *= 2;
  }
  return winnow::cuda::has_programmatic_launch() ? size : 1;
}

}  // namespace

void sample_tokens(const float* logits, int count, int vocab, const SampledRow* rows,
                   std::int32_t* tokens, cudaStream_t stream) {
  if (count > 0) {
    const int team = team_size(count);
    winnow::cuda::launch_clusters(sample_kernel, team * count, team, kThreads, 0, stream, true,
                                  logits, vocab, rows, team, tokens);
  }
}

void mark_tokens(std::uint32_t* seen, const std::int32_t* tokens, int count, cudaStream_t stream) {
  constexpr int kMarkThreads = 256;
  if (count > 0) {
    mark_kernel<<<(count + kMarkThreads - 1) / kMarkThreads, kMarkThreads, 0, stream>>>(
        seen, tokens, count);
    winnow::cuda::check_launch("mark tokens");
  }
}

}  // namespace winnow::ops::cuda
