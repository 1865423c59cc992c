// What the ranks of a training run on devices exchange.
#pragma once

#include <cassert>
#include <memory>
#include <span>
#include <vector>

#include "parallel/all_values.h"
#include "parallel/cuda/nccl_arrays.h"
#include "parallel/cuda/peer_access.h"
#include "parallel/cuda/rank_sums.h"
#include "train/cuda/copies.h"

namespace winnow::train::cuda {

/// Each rank makes one; all call its functions together. Threads of one process read each other's
/// memory: a rank that fails takes its memory with it, and others that still read it may report an
/// illegal access before they learn its reason. Processes use NCCL.
class Peers {
 public:
  /// One array of each rank.
  template <class T>
  struct Arrays {
    T* own = nullptr;
    std::vector<const T*> of_rank;  // by rank; empty for processes
  };

  /// `host` must outlive this. `device`: this rank's.
  Peers(parallel::Communicator& host, int device) : host_(host) {
    if (host.size() > 1) {
      host.meet();  // others may still begin
      if (host.in_one_process()) {
        parallel::cuda::allow_peer_access(host, device);
      } else {
        arrays_ = parallel::cuda::make_nccl_arrays(host);
      }
    }
  }

  [[nodiscard]] int rank() const { return host_.rank(); }
  [[nodiscard]] int size() const { return host_.size(); }
  /// Whether ranks read each other's memory: those that are threads. Processes use NCCL.
  [[nodiscard]] bool share_memory() const { return arrays_ == nullptr; }
  /// Waits for the host threads of all ranks.
  void meet() const { host_.meet(); }

  /// The same for ranks that share memory; others need not wait.
  void meet_readers() const {
    if (share_memory()) {
      meet();
    }
  }

  /// The pointers that the ranks pass, by rank. Only with shared memory.
  template <class T>
  [[nodiscard]] std::vector<T*> addresses_of(T* own) const {
    assert(share_memory());
    meet();  // others may still be loading
    return parallel::all_values(host_, own);
  }

  template <class T>
  [[nodiscard]] Arrays<T> share(T* own) const {
    return {own, share_memory() ? addresses_of<const T>(own) : std::vector<const T*>{}};
  }

  /// Waits until the work of all ranks in their streams is complete, so that others may read or
  /// replace its results. NCCL does that by itself.
  void settle(const winnow::cuda::Stream& stream) const {
    if (size() > 1 && share_memory()) {
      stream.synchronize();
      meet();
    }
  }

  /// to [count] = rank `rank`'s array from `at` on.
  template <class T>
  void copy(const Arrays<T>& arrays, int rank, std::size_t at, T* to, std::size_t count,
            cudaStream_t stream) const {
    if (arrays_ != nullptr) {
      arrays_->copy_from(rank, arrays.own + at, to, count * sizeof(T), stream);
    } else if (const T* from = arrays.of_rank[static_cast<std::size_t>(rank)] + at; from != to) {
      copy_async(to, from, count, stream);
    }
  }

  /// values [count] = those of rank `rank`. Only without shared memory.
  template <class T>
  void take_from(int rank, T* values, std::size_t count, cudaStream_t stream) const {
    arrays_->copy_from(rank, values, values, count * sizeof(T), stream);
  }

  /// `to` = or += the sum over all ranks of this rank's part of the arrays, [cuts[rank],
  /// cuts[rank + 1]). That part may change.
  void sum_own_part(const Arrays<float>& arrays, std::span<const std::size_t> cuts, float* to,
                    bool add, cudaStream_t stream) const {
    const auto own = static_cast<std::size_t>(rank());
    const std::size_t count = cuts[own + 1] - cuts[own];
    parallel::cuda::Parts parts;
    if (share_memory()) {
      for (std::size_t i = 0; i < arrays.of_rank.size(); ++i) {
        parts.of[i] = arrays.of_rank[i] + cuts[own];
      }
      return parallel::cuda::sum_complete_parts(parts, size(), to, add, count, stream);
    }
    float* sum = add ? arrays.own + cuts[own] : to;
    arrays_->reduce_scatter(arrays.own, cuts, sum, stream);
    if (add) {
      parts.of[0] = sum;
      parallel::cuda::sum_complete_parts(parts, 1, to, true, count, stream);
    }
  }

 private:
  parallel::Communicator& host_;
  std::unique_ptr<const parallel::cuda::RankArrays> arrays_;  // of several processes
};

}  // namespace winnow::train::cuda
