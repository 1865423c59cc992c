// The matrices of a model that ranks hold in parts.
#pragma once

#include <variant>

#include "train/cuda/access.h"
#include "train/cuda/layer_slots.h"
#include "train/cuda/peers.h"
#include "train/cuda_memory/rank_parts.h"

namespace winnow::train::cuda {

/// Gathers the matrices of a place from all ranks. Layers have the slots; embedding and head share
/// a buffer, which each fills when it is opened.
class PlaceMatrices {
 public:
  /// The matrices that each rank holds.
  using Held = std::variant<Peers::Arrays<float>, Peers::Arrays<bf16>>;

  /// All must outlive this. `slots`: of layers as large as the largest one of `parts`.
  PlaceMatrices(const Peers& peers, const RankParts& parts, LayerSlots& slots,
                const winnow::cuda::Stream& passes);
  void set_held(Held held) { held_ = std::move(held); }

  /// Where a matrix is while its place is open.
  [[nodiscard]] const bf16* address_of(const Parameter& parameter) const;
  /// PlaceAccess::open().
  void open(int place, int next);
  /// The values that ranks hold have changed.
  void forget() { slots_.forget(this); }

 private:
  void gather(int place, bf16* to, cudaStream_t stream) const;
  /// to [count] = those from `at` on that a rank holds.
  template <class T>
  void gather_piece(const Peers::Arrays<T>& held, int rank, std::size_t at, bf16* to,
                    std::size_t count, cudaStream_t stream) const;

  const Peers& peers_;
  const RankParts& parts_;
  LayerSlots& slots_;
  const winnow::cuda::Stream& passes_;
  winnow::cuda::DeviceBuffer<bf16> end_;  // the embedding or the head
  Held held_;
};

}  // namespace winnow::train::cuda
