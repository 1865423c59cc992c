#include "train/cuda/place_matrices.h"

#include "train/cuda/copies.h"
#include "train/cuda/optimizer.h"

namespace winnow::train::cuda {
namespace {

void copy_rounded(bf16* to, const float* from, std::size_t count, cudaStream_t stream) {
  round_values(to, from, count, stream);
}

void copy_rounded(bf16* to, const bf16* from, std::size_t count, cudaStream_t stream) {
  copy_async(to, from, count, stream);
}

}  // namespace

PlaceMatrices::PlaceMatrices(const Peers& peers, const RankParts& parts, LayerSlots& slots,
                             const winnow::cuda::Stream& passes)
    : peers_(peers), parts_(parts), slots_(slots), passes_(passes), end_(parts.largest_end()) {}

const bf16* PlaceMatrices::address_of(const Parameter& parameter) const {
  if (parameter.role == Role::embedding) {
    return end_.data();
  }
  const int layer = layer_of(parameter.name);
  return slots_.of(layer) + (parameter.offset - parts_.matrices_of(layer).first);
}

void PlaceMatrices::open(int place, int next) {
  if (!parts_.is_layer(place)) {
    return gather(place, end_.data(), passes_.get());
  }
  slots_.open(this, place, parts_.is_layer(next) ? next : -1,
              [this](int layer, bf16* to, cudaStream_t stream) { gather(layer, to, stream); });
}

void PlaceMatrices::gather(int place, bf16* to, cudaStream_t stream) const {
  const RankParts::Range range = parts_.matrices_of(place);
  std::visit(
      [&](const auto& held) {
        parts_.for_pieces(range,
                          [&](int rank, std::size_t at, std::size_t from, std::size_t count) {
                            gather_piece(held, rank, from, to + (at - range.first), count, stream);
                          });
      },
      held_);
}

template <class T>
void PlaceMatrices::gather_piece(const Peers::Arrays<T>& held, int rank, std::size_t at, bf16* to,
                                 std::size_t count, cudaStream_t stream) const {
  if (peers_.share_memory()) {
    return copy_rounded(to, held.of_rank[static_cast<std::size_t>(rank)] + at, count, stream);
  }
  if (rank == peers_.rank()) {
    copy_rounded(to, held.own + at, count, stream);
  }
  peers_.take_from(rank, to, count, stream);
}

}  // namespace winnow::train::cuda
