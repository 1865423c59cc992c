#include "train/cuda/gradient_slots.h"

namespace winnow::train::cuda {

GradientSlots::GradientSlots(const Peers& peers, const RankParts& parts,
                             const winnow::cuda::Stream& passes, float* held)
    : peers_(peers), parts_(parts), passes_(passes), held_(held) {
  slots_[0].memory = winnow::cuda::DeviceBuffer<float>(parts.largest_layer());
  slots_[1].memory = winnow::cuda::DeviceBuffer<float>(parts.largest_layer());
  slots_[2].memory = winnow::cuda::DeviceBuffer<float>(parts.largest_end());
  of_rank_ = peers.addresses_of<const Slot>(slots_.data());
}

float* GradientSlots::address_of(const Parameter& parameter) const {
  if (parameter.role == Role::embedding) {
    return slots_[2].memory.data();
  }
  const int layer = layer_of(parameter.name);
  return slots_[slot_of(layer)].memory.data() +
         (parameter.offset - parts_.matrices_of(layer).first);
}

// The other ranks' hosts are behind the close() in which they recorded that they read this buffer:
// the layer in between has closed since. The head follows the embedding of the part before, so
// ranks meet here.
void GradientSlots::open(int place) {
  if (!parts_.is_layer(place)) {
    peers_.meet();
  }
  const std::size_t slot = slot_of(place);
  for (const Slot* slots : of_rank_) {
    slots[slot].summed.hold(passes_);
  }
  const auto [begin, end] = parts_.matrices_of(place);
  winnow::cuda::check(
      cudaMemsetAsync(slots_[slot].memory.data(), 0, (end - begin) * sizeof(float), passes_.get()),
      "fill");
}

void GradientSlots::close(int place) {
  const std::size_t slot = slot_of(place);
  slots_[slot].added.record(passes_);
  peers_.meet();  // all have recorded it
  parallel::cuda::Parts parts;
  for (const Slot* slots : of_rank_) {
    slots[slot].added.hold(sums_);
  }
  const RankParts::Range range = parts_.matrices_of(place);
  parts_.for_pieces_of(parts_.rank(), range,
                       [&](std::size_t at, std::size_t held, std::size_t count) {
                         for (std::size_t rank = 0; rank < of_rank_.size(); ++rank) {
                           parts.of[rank] = of_rank_[rank][slot].memory.data() + (at - range.first);
                         }
                         parallel::cuda::sum_complete_parts(parts, parts_.ranks(), held_ + held,
                                                            true, count, sums_.get());
                       });
  slots_[slot].summed.record(sums_);
}

void GradientSlots::complete() const {
  for (const Slot& slot : slots_) {
    slot.summed.hold(passes_);
  }
}

}  // namespace winnow::train::cuda
