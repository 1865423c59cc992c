// A row is sampled without sorting it. Its candidates are ordered by a place: their distance from
// the largest logit, then their token id. Every search looks for the first place at which a running
// sum of weights (or of candidates) exceeds a goal. A histogram of all candidates over the leading
// digit of their places, made once, gives that digit. When few candidates share the
// digits found so far, they are listed, and one block searches the list; until then another
// histogram, of these candidates over the next digit, takes another pass over the vocabulary. Sums
// of integers do not depend on the order in which threads add to them.
//
// A cluster of blocks processes a row, so that few rows fill the device as well; each block has a
// histogram of its own part of the vocabulary.
#include "base/cuda/launch.cuh"
#include "ops/cuda/sampling/row_logits.cuh"
#include "ops/cuda/sampling/sampling.h"
#include "ops/cuda/sampling/sampling_search.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kMostTeam = 8;  // blocks per row; every device with clusters has room for these

class RowSampler {
 public:
  __device__ RowSampler(const float* logits, int vocab, const SampledRow& row)
      : logits_(logits, vocab, row), row_(row) {}

  __device__ void run(std::int32_t* token) {
    if (this_thread() == 0) {
      shared().listed_count = 0;
    }
    const Word best = find_largest();
    auto chosen = static_cast<std::int32_t>(~static_cast<std::uint32_t>(best));
    if (best < kNumbers || (row_.allowed != nullptr && best >> 32 == order(-INFINITY))) {
      chosen = kNoToken;
    } else if (row_.rule.octaves > 0.0F && row_.rule.most != 1) {
      largest_ = logit_of(static_cast<std::uint32_t>(best >> 32));
      chosen = draw();
    }
    if (team_.rank() == 0 && this_thread() == 0) {
      *token = chosen;
      if (row_.seen != nullptr) {
        atomicOr(row_.seen + row_.newest / 32, 1U << (row_.newest % 32));
      }
    }
    team_.synchronize();  // no block exits while others read its shared memory
  }

 private:
  // Calls f(token, its logit and the next three) for the block's share of the vocabulary.
  template <class F>
  __device__ void each_vector(const F& f) const {
    logits_.each(team_.rank() * kThreads + this_thread(), team_.size() * kThreads, f);
  }
  // Calls f(place, weight) for its candidates.
  template <class F>
  __device__ void each_candidate(const F& f) const {
    const float largest = largest_;
    const float octaves = row_.rule.octaves;
    each_vector([&](int token, const RowLogits::Vector& x) {
      std::uint32_t far[RowLogits::kVector];
      Word weights[RowLogits::kVector];
#pragma unroll
      for (int i = 0; i < RowLogits::kVector; ++i) {
        far[i] = distance(x[i], largest, octaves);
        weights[i] = weight(min(far[i], kNoWeight - 1));  // clamped, to avoid a branch
      }
#pragma unroll
      for (int i = 0; i < RowLogits::kVector; ++i) {
        if (far[i] < kNoWeight) {
          f(Word{far[i]} << 32 | static_cast<std::uint32_t>(token + i), weights[i]);
        }
      }
    });
  }
  // Larger for larger logits; 0 for NaN.
  static __device__ std::uint32_t order(float logit) {
    const std::uint32_t bits = __float_as_uint(logit + 0.0F);  // -0 must equal 0
    return isnan(logit) ? 0U : (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
  }

  static __device__ float logit_of(std::uint32_t order) {
    return __uint_as_float((order & 0x80000000U) != 0 ? order ^ 0x80000000U : ~order);
  }

  // The order of the largest logit, then ~token, so that the lowest token wins a tie; less than
  // kNumbers if all are NaN.
  static constexpr Word kNumbers = Word{1} << 32;
  __device__ Word find_largest() const {
    std::uint32_t largest = 0;
    int first = 0;
    each_vector([&](int token, const RowLogits::Vector& x) {
#pragma unroll
      for (int i = 0; i < RowLogits::kVector; ++i) {
        const std::uint32_t own = order(x[i]);
        first = own > largest ? token + i : first;
        largest = max(own, largest);
      }
    });
    Word best = Word{largest} << 32 | ~static_cast<std::uint32_t>(first);
    for (int step = 16; step > 0; step /= 2) {
      best = max(best, __shfl_xor_sync(kAllLanes, best, step));
    }
    if (this_thread() % 32 == 0) {
      shared().warp_best[this_thread() / 32] = best;
    }
    __syncthreads();
    if (this_thread() == 0) {
      for (const Word other : shared().warp_best) {
        best = max(best, other);
      }
      shared().best = best;
    }
    team_.synchronize();
    for (int rank = 0; rank < team_.size(); ++rank) {
      best = max(best, team_.of(shared().best, rank));
    }
    return best;
  }

  __device__ std::int32_t draw() {
    clear_histogram(kAll);
    fill(kAll, {});
    for (int rank = 0; rank < team_.size(); ++rank) {
      through_.add(team_.of(shared().histograms[kAll].slice, rank));
    }
    // Each of these keeps a part of the candidates.
    const TokenRule& rule = row_.rule;
#pragma unroll 1  // a search is too large to unroll
    for (const Step step : {Step::most, Step::share, Step::random}) {
      if (step == Step::random) {
        drop_far();
      }
      if ((step != Step::most || rule.most > 0) && (step != Step::share || rule.share > 0)) {
        search(goal_of(step));
      }
    }
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(last_));
  }

  enum class Step : std::uint8_t { most, share, random };
  __device__ Goal goal_of(Step step) const {
    const TokenRule& rule = row_.rule;
    if (step == Step::most) {
      return {true, static_cast<Word>(rule.most) - 1};
    }
    return {false, __umul64hi(through_.weight, step == Step::share ? rule.share : rule.random)};
  }

  __device__ void drop_far() {
    if (row_.rule.farthest < last_ >> 32) {
      last_ = Word{row_.rule.farthest} << 32 | ~0U;
      through_ = sum_to_last();
    }
  }

  // Makes the first place at which the sum exceeds the goal the last one, if it exists.
  __device__ void search(const Goal& goal) {
    if (!cross(kAll, {}, goal)) {
      return;
    }
    Crossing crossing = shared().crossing;
    while (crossing.inside.count > kMostListed) {
      team_.synchronize();  // all blocks have read the last one
      clear_histogram(kSome);
      fill(kSome, crossing);
      cross(kSome, crossing, goal);
      crossing = shared().crossing;
    }
    list(crossing);
    if (team_.rank() == 0) {
      search_list(crossing, goal);
    }
    team_.synchronize();
    last_ = team_.of(shared().found, 0);
    through_ = team_.of(shared().through, 0);
  }

  // Histogram of the crossing's candidates by the next digit; each block's slice gets team sums.
  __device__ void fill(int which, const Crossing crossing) {
    Histogram& histogram = shared().histograms[which];
    const Digit digit = crossing.next();
    each_candidate([&](Word place, Word weight) {
      if (crossing.holds(place)) {
        histogram.add(digit.bin_of(place), weight);
      }
    });
    team_.synchronize();
    Mass sum;
    for (int bin = slice_begin(team_.rank()) + this_thread(); bin < slice_begin(team_.rank() + 1);
         bin += kThreads) {
      Mass mass = histogram.mass(bin);
      // No other thread accesses this slice.
#pragma unroll
      for (int other = 1; other < kMostTeam; ++other) {
        if (other < team_.size()) {
          mass.add(team_.of(histogram, (team_.rank() + other) % team_.size()).mass(bin));
        }
      }
      histogram.put(bin, mass);
      sum.add(mass);
    }
    Mass total;
    inclusive_scan(sum, total);
    if (this_thread() == 0) {
      histogram.slice = total;
    }
    team_.synchronize();
  }

  __device__ int slice_begin(int rank) const {
    return kBins * rank / team_.size();
  }

  // Advances by a digit. Returns whether the sum exceeds the goal anywhere; every block then finds
  // the result in its shared memory.
  __device__ bool cross(int which, Crossing so_far, const Goal& goal) {
    Histogram& histogram = shared().histograms[which];
    for (int rank = 0; rank < team_.size(); ++rank) {
      Mass after = so_far.before;
      after.add(team_.of(histogram.slice, rank));
      if (goal.passed_by(after)) {
        cross_bins(team_.of(histogram, rank), slice_begin(rank), slice_begin(rank + 1), so_far,
                   goal);
        return true;
      }
      so_far.before = after;
    }
    return false;
  }

  // Copies the team's candidates in the crossing to its first block, whose list is empty.
  __device__ void list(const Crossing crossing) {
    SamplingMemory& first = team_.of(shared(), 0);
    each_candidate([&](Word place, Word /*weight*/) {
      if (crossing.holds(place)) {
        first.listed[atomicAdd(&first.listed_count, 1U)] = place;
      }
    });
    team_.synchronize();
  }

  __device__ Mass sum_to_last() {
    Mass sum;
    const Word last = last_;
    each_candidate([&](Word place, Word weight) {
      if (place <= last) {
        sum.add({weight, 1});
      }
    });
    Mass total;
    inclusive_scan(sum, total);
    if (this_thread() == 0) {
      shared().own = total;
    }
    team_.synchronize();
    Mass all;
    for (int rank = 0; rank < team_.size(); ++rank) {
      all.add(team_.of(shared().own, rank));
    }
    return all;
  }

  RowLogits logits_;
  const SampledRow& row_;
  Team team_;
  float largest_ = 0.0F;
  Word last_ = ~Word{0};  // candidates after this place are dropped
  Mass through_;          // of the candidates up to there
};

__global__ void __launch_bounds__(kThreads)
    sample_kernel(const float* logits, int vocab, const SampledRow* rows, int team,
                  std::int32_t* tokens) {
  const int index = static_cast<int>(blockIdx.x) / team;
  const SampledRow row = rows[index];
  winnow::cuda::wait_for_predecessor();
  winnow::cuda::release_successor();
  RowSampler(logits + static_cast<std::size_t>(index) * vocab, vocab, row).run(tokens + index);
}

__global__ void mark_kernel(std::uint32_t* seen, const std::int32_t* tokens, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) {
    atomicOr(seen + tokens[i] / 32, 1U << (tokens[i] % 32));
  }
}

// Blocks per row: as many as run at once.
int team_size(int rows) {
  int size = winnow::cuda::has_programmatic_launch() ? kMostTeam : 1;
  while (size > 1 && winnow::cuda::resident_clusters(sample_kernel, size, kThreads,
                                                     sizeof(SamplingMemory)) < rows) {
    --size;
  }
  return size;
}

}  // namespace

void sample_tokens(const float* logits, int count, int vocab, const SampledRow* rows,
                   std::int32_t* tokens, cudaStream_t stream) {
  if (count > 0) {
    winnow::cuda::allow_most_shared_memory(reinterpret_cast<const void*>(sample_kernel));
    const int team = team_size(count);
    winnow::cuda::launch_clusters(sample_kernel, team * count, team, kThreads,
                                  sizeof(SamplingMemory), stream, true, logits, vocab, rows, team,
                                  tokens);
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
