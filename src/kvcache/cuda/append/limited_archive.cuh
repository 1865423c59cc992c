// Archives that hold at most the budget less the window (HeadCache::place_in_archive): over it, the
// entry with the highest logit is dropped.
#pragma once

#include "kvcache/cuda/append/append_row.cuh"
#include "kvcache/cuda/append/projection.h"
#include "kvcache/cuda/candidate.cuh"

namespace winnow::kvcache::cuda {

/// Entries that a sequence's archives hold.
inline __device__ int archive_limit(const CacheView& cache, int slot) {
  return max(0, cache.budgets[slot] - cache.ring);
}

/// NaN has no order: NaN is evicted first.
inline __device__ float without_nan(float logit) {
  return isnan(logit) ? INFINITY : logit;
}

/// The entry of a row's archive to drop, with its negative logit: the one with the highest logit,
/// the oldest of equals. By all threads of a block.
inline __device__ Candidate highest_of_archive(const CacheView& cache, std::size_t row, int count) {
  const std::size_t first = row * cache.entry_stride;
  Candidate best;
  for (int i = threadIdx.x; i < count; i += blockDim.x) {
    const Candidate own{-cache.received[first + i], cache.positions[first + i], i};
    if (own.before(best)) {
      best = own;
    }
  }
  return first_of_block(best);
}

/// Whether an entry with `logit` takes the place of `highest`, which may be none.
inline __device__ bool replaces(float logit, const Candidate& highest) {
  return highest.slot >= 0 && -highest.score >= logit;
}

/// Notes the entry in an archive slot.
inline __device__ void note_entry(const CacheView& cache, std::size_t row, int slot, int position,
                                  float score) {
  cache.positions[row * cache.entry_stride + slot] = position;
  cache.received[row * cache.entry_stride + slot] = score;
}

/// Stores the logit of the token at `length`. Returns that of the entry in the ring slot that is
/// overwritten.
inline __device__ float renew_logits(const CacheView& cache, std::size_t row, int length,
                                     float logit) {
  float* logits = cache.window_logits + row * cache.ring;
  if (cache.shift > 0 && length >= cache.shift) {
    logits[(length - cache.shift) % cache.ring] = logit;
  }
  const float leaving = logits[length % cache.ring];
  logits[length % cache.ring] = cache.shift == 0 ? logit : 0.0F;
  return leaving;
}

/// advance_row() for limited archives. `highest`: of the archive, if it is full.
inline __device__ Places advance_limited_row(const CacheView& cache, std::size_t row, int sequence,
                                             int length, const Decision& decision,
                                             const RowState& state, const Candidate& highest) {
  const int slot = length % state.ring;
  const bool marked = renew_marks(cache, row, length, decision.taken, state);
  const float logit = renew_logits(cache, row, length, without_nan(decision.logit));
  Places places{slot, -1};
  if (length < state.ring) {
    push_window(cache, row, slot);
  } else if (!marked && state.count < archive_limit(cache, sequence)) {
    places.archived = push_archive(cache, row, state.count);
  } else if (!marked && replaces(logit, highest)) {
    places.archived = highest.slot;
  }
  if (places.archived >= 0) {
    note_entry(cache, row, places.archived, length - state.ring, logit);
  }
  return places;
}

}  // namespace winnow::kvcache::cuda
