// One token of one sequence and KV head taken into the cache by a team of warps.
#pragma once

#include "kvcache/cuda/entry_place.cuh"
#include "kvcache/cuda/projection.cuh"
#include "kvcache/cuda/step.h"

namespace winnow::kvcache::cuda {

inline constexpr int kLeastAppendThreads = 96;  // of a team

/// What a thread knows of its row before the token is known: nothing of it was written just before,
/// so it is read meanwhile.
struct RowState {
  int count;                     // archive entries
  std::uint32_t mark_of_slot;    // the words that hold the marks of the ring slot that turns over
  std::uint32_t mark_of_latest;  // and of the newest token's

  __device__ RowState(const CacheView& cache, std::size_t row, int length)
      : count(cache.archive_counts[row]), mark_of_slot(0), mark_of_latest(0) {
    if (cache.ring > 0) {
      const std::uint32_t* marks = cache.marks + row * cache.mark_words;
      mark_of_slot = marks[length % cache.ring / 32];
      mark_of_latest = marks[max(length - 1, 0) % cache.ring / 32];
    }
  }
};

/// Where a token goes, and what it turns out.
struct Places {
  int newest;    // slot of the new entry, in the ring or, without one, in the archive
  int archived;  // archive slot that the leaving entry goes to, -1 if it is forgotten
};

/// Moves the row's state on by one token. One thread's work.
inline __device__ Places advance_row(const CacheView& cache, std::size_t row, int length,
                                     bool decision, const RowState& state) {
  const auto push = [&] {
    if (state.count % ops::kPageEntries == 0) {
      cache.archive_pages[row * cache.archive_stride + state.count / ops::kPageEntries] =
          take_page(cache);
    }
    cache.archive_counts[row] = state.count + 1;
    return state.count;
  };
  if (cache.ring == 0) {
    return {push(), -1};
  }
  const int slot = length % cache.ring;
  const int latest = max(length - 1, 0) % cache.ring;
  std::uint32_t marks = state.mark_of_slot;
  const auto mark = [](std::uint32_t word, int at, bool evicted) {
    const std::uint32_t bit = 1U << (at % 32);
    return evicted ? word | bit : word & ~bit;
  };
  std::uint32_t* words = cache.marks + row * cache.mark_words;
  if (cache.shift == 1 && length > 0) {
    const std::uint32_t decided = mark(state.mark_of_latest, latest, decision);
    words[latest / 32] = decided;
    marks = latest / 32 == slot / 32 ? decided : marks;
  }
  words[slot / 32] = mark(marks, slot, cache.shift == 0 && decision);
  Places places{slot, -1};
  if (length >= cache.ring) {
    const bool kept = (marks >> (slot % 32) & 1U) == 0;
    places.archived = kept ? push() : -1;
  } else if (slot % ops::kPageEntries == 0) {
    cache.window_pages[row * cache.window_stride + slot / ops::kPageEntries] = take_page(cache);
  }
  return places;
}

/// The entry that the ring's slot holds now, spread over a team's threads.
template <class Code, int D, class Team>
class LeavingEntry {
 public:
  __device__ void load(const EntryPlace<Code, D>& from, bool scaled) {
    each([&](int i, int d) {
      key_[i] = from.key(d);
      value_[i] = from.value(d);
    });
    if (scaled) {
      key_scale_ = from.key_scale();
      value_scale_ = from.value_scale();
    }
  }
  __device__ void store(const EntryPlace<Code, D>& to, bool scaled) const {
    each([&](int i, int d) {
      to.key(d) = key_[i];
      to.value(d) = value_[i];
    });
    if (scaled && Team::thread() == 0) {
      to.key_scale() = key_scale_;
      to.value_scale() = value_scale_;
    }
  }

 private:
  static constexpr int kEach = (D + kLeastAppendThreads - 1) / kLeastAppendThreads;

  template <class F>
  __device__ static void each(const F& f) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (const int d = Team::thread() + i * Team::threads(); d < D) {
        f(i, d);
      }
    }
  }

  Code key_[kEach];
  Code value_[kEach];
  __nv_bfloat16 key_scale_;
  __nv_bfloat16 value_scale_;
};

/// A warp of the team takes up to kEach of the group + 2 vectors.
template <class Format, int D, class Team, int kEach>
class TokenAppend {
 public:
  /// Reads what nothing just before has written.
  __device__ TokenAppend(const CacheView& cache, const Projection& projection,
                         const DecodeAppend& step, int head, int token)
      : cache_(cache),
        head_(head),
        token_(token),
        length_(cache.lengths[step.slots[token]]),
        row_(cache.row(step.layer, step.slots[token], head)),
        state_(cache, row_, length_),
        angles_(projection.angles + static_cast<std::size_t>(token) * (D / 2)),
        drawn_(projection.decision.drawn && Team::thread() == 0 &&
               draw(projection.decision, length_, step.layer, head)) {
    if (cache.ring > 0 && length_ >= cache.ring) {
      leaving_.load(Place(cache, window(), length_ % cache.ring), kScaled);
    }
  }

  /// Takes the token once its products are there.
  __device__ void take(const Projection& projection, const DecodeAppend& step) const {
    const int group = projection.group;
    const int warp = Team::thread() / 32;
    const int warps = Team::threads() / 32;
    const std::size_t heads = projection.kv_heads * group;
    const float* qkv = step.qkv + token_ * (heads + 2 * projection.kv_heads) * D;
    ops::cuda::HeadVector<D> vectors[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (const int v = warp + i * warps; v < group + 2) {
        load_vector(projection, qkv, head_, v, vectors[i]);
      }
    }
    const bool decision = decide<D, Team>(projection, qkv, token_, head_, drawn_);
    __shared__ Places places;
    if (Team::thread() == 0) {
      places = advance_row(cache_, row_, length_, decision, state_);
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (const int v = warp + i * warps; v < group + 2) {
        project<D>(projection, angles_, v, vectors[i]);
        if (v < group) {
          vectors[i].store(step.queries + (token_ * heads + head_ * group + v) * D);
        }
      }
    }
    Team::sync();
    if (places.archived >= 0) {
      leaving_.store(Place(cache_, archive(), places.archived), kScaled);
    }
    const Place newest(cache_, cache_.ring > 0 ? window() : archive(), places.newest);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (const int v = warp + i * warps; v == group) {
        const float scale =
            vectors[i].template encode<Format>([&](int d, Code code) { newest.key(d) = code; });
        if (kScaled && threadIdx.x % 32 == 0) {
          newest.key_scale() = __float2bfloat16_rn(scale);
        }
      } else if (v == group + 1) {
        const float scale =
            vectors[i].template encode<Format>([&](int d, Code code) { newest.value(d) = code; });
        if (kScaled && threadIdx.x % 32 == 0) {
          newest.value_scale() = __float2bfloat16_rn(scale);
        }
      }
    }
  }

 private:
  using Code = typename Format::Code;
  using Place = EntryPlace<Code, D>;
  static constexpr bool kScaled = Format::kLargest > 0.0F;

  [[nodiscard]] __device__ const std::uint32_t* archive() const {
    return cache_.archive_pages + row_ * cache_.archive_stride;
  }
  [[nodiscard]] __device__ const std::uint32_t* window() const {
    return cache_.window_pages + row_ * cache_.window_stride;
  }

  const CacheView& cache_;
  int head_;
  int token_;
  int length_;
  std::size_t row_;
  RowState state_;
  typename ops::cuda::HeadVector<D>::Angles angles_;
  bool drawn_;  // in the first thread
  LeavingEntry<Code, D, Team> leaving_;
};

}  // namespace winnow::kvcache::cuda
