// The effect of one token on one row of the cache.
#pragma once

#include "kvcache/cuda/entry_place.cuh"

namespace winnow::kvcache::cuda {

inline constexpr int kLeastThreads = 96;  // per block: one query head, key and value

/// The part of a row's state that a thread reads before the token is available. The preceding
/// kernels do not write it, so it is read while they finish.
struct RowState {
  int ring;                       // entries of the window
  int count;                      // archive entries
  int decided;                    // ring slot of the key that the token decides about
  std::uint32_t mark_of_slot;     // the word with the mark of the ring slot that is overwritten
  std::uint32_t mark_of_decided;  // the word with the mark of `decided`

  __device__ RowState(const CacheView& cache, std::size_t row, int slot, int length)
      : ring(ring_of(cache, slot)),
        count(cache.archive_counts[row]),
        decided(0),
        mark_of_slot(0),
        mark_of_decided(0) {
    if (cache.mark_words > 0) {
      const std::uint32_t* marks = cache.marks + row * cache.mark_words;
      decided = max(length - cache.shift, 0) % ring;
      mark_of_slot = marks[length % ring / 32];
      mark_of_decided = marks[decided / 32];
    }
  }
};

struct Places {
  int newest;    // slot of the new entry, in the ring or, if there is none, in the archive
  int archived;  // archive slot of the entry that leaves the ring; -1: evicted
};

/// Stores a token's decision. Returns whether the key in the ring slot that is overwritten is
/// marked.
inline __device__ bool renew_marks(const CacheView& cache, std::size_t row, int length,
                                   bool decision, const RowState& state) {
  const int slot = length % state.ring;
  const auto mark = [](std::uint32_t word, int at, bool evicted) {
    const std::uint32_t bit = 1U << (at % 32);
    return evicted ? word | bit : word & ~bit;
  };
  std::uint32_t* words = cache.marks + row * cache.mark_words;
  std::uint32_t marks = state.mark_of_slot;
  if (cache.shift > 0 && length >= cache.shift) {
    const std::uint32_t decided = mark(state.mark_of_decided, state.decided, decision);
    words[state.decided / 32] = decided;
    marks = state.decided / 32 == slot / 32 ? decided : marks;
  }
  words[slot / 32] = mark(marks, slot, cache.shift == 0 && decision);
  return (marks >> (slot % 32) & 1U) != 0;
}

/// Returns a new slot at the end of a row's archive. `opens`: takes a page if the slot is the first
/// of its page. For one thread, like the functions below.
inline __device__ int push_archive(const CacheView& cache, std::size_t row, int count,
                                   bool opens = true) {
  if (opens && count % ops::kPageEntries == 0) {
    cache.archive_pages[row * cache.archive_stride + count / ops::kPageEntries] = take_page(cache);
  }
  cache.archive_counts[row] = count + 1;
  return count;
}

/// Takes a page for a new entry of the window if its slot is the first of the page.
inline __device__ void push_window(const CacheView& cache, std::size_t row, int slot) {
  if (slot % ops::kPageEntries == 0) {
    cache.window_pages[row * cache.window_stride + slot / ops::kPageEntries] = take_page(cache);
  }
}

/// Advances the row's state by one token.
inline __device__ Places advance_row(const CacheView& cache, std::size_t row, int sequence,
                                     int length, bool decision, const RowState& state) {
  if (state.ring == 0) {
    // Once a token has been dropped, the row has the page already.
    return {push_archive(cache, row, state.count, !cache.drops_each || state.count == length), -1};
  }
  const int slot = length % state.ring;
  const bool marked = cache.mark_words > 0 && renew_marks(cache, row, length, decision, state);
  Places places{slot, -1};
  if (length >= state.ring) {
    const bool kept =
        cache.sinks != nullptr ? length - state.ring < cache.sinks[sequence] : !marked;
    places.archived = kept ? push_archive(cache, row, state.count) : -1;
  } else {
    push_window(cache, row, slot);
  }
  return places;
}

/// The entry in the ring slot that is overwritten, spread over the threads that construct this.
template <class Code, int D>
class LeavingEntry {
 public:
  __device__ LeavingEntry(int thread, int threads) : thread_(thread), threads_(threads) {}

  __device__ void load(const EntryPlace<Code, D>& from, bool scaled) {
    each(codes_of<Code>(from.dim), [&](int i, int d) {
      key_[i] = from.key(d);
      value_[i] = from.value(d);
    });
    if (scaled) {
      key_scale_ = from.key_scale();
      value_scale_ = from.value_scale();
    }
  }
  __device__ void store(const EntryPlace<Code, D>& to, bool scaled) const {
    each(codes_of<Code>(to.dim), [&](int i, int d) {
      to.key(d) = key_[i];
      to.value(d) = value_[i];
    });
    if (scaled && thread_ == 0) {
      to.key_scale() = key_scale_;
      to.value_scale() = value_scale_;
    }
  }

 private:
  static constexpr int kEach = (kMostCodes<Code, D> + kLeastThreads - 1) / kLeastThreads;

  template <class F>
  __device__ void each(int codes, const F& f) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (const int d = thread_ + i * threads_; d < codes) {
        f(i, d);
      }
    }
  }

  int thread_;
  int threads_;
  Code key_[kEach];
  Code value_[kEach];
  __nv_bfloat16 key_scale_;
  __nv_bfloat16 value_scale_;
};

}  // namespace winnow::kvcache::cuda
