#include "train/cuda/gradient_slots.h"

namespace winnow::train::cuda {

void add_own_parts(const Peers& peers, const RankParts& parts, const Peers::Arrays<float>& arrays,
                   RankParts::Range range, float* held, cudaStream_t stream) {
  parts.for_cuts(range, [&](std::span<const std::size_t> cuts, std::size_t at) {
    peers.sum_own_part(arrays, cuts, held + at, /*add=*/true, stream);
  });
}

GradientSlots::GradientSlots(const Peers& peers, const RankParts& parts,
                             const winnow::cuda::Stream& passes, float* held)
    : peers_(peers), parts_(parts), passes_(passes), held_(held) {
  slots_[0].memory = winnow::cuda::DeviceBuffer<float>(parts.largest_layer());
  slots_[1].memory = winnow::cuda::DeviceBuffer<float>(parts.largest_layer());
  slots_[2].memory = winnow::cuda::DeviceBuffer<float>(parts.largest_end());
  for (Slot& slot : slots_) {
    slot.of_ranks = peers.share(slot.memory.data());
  }
  events_ = peers.share_memory() ? peers.addresses_of<const Slot>(slots_.data())
                                 : std::vector<const Slot*>{slots_.data()};
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
    peers_.meet_readers();
  }
  const std::size_t slot = slot_of(place);
  for (const Slot* slots : events_) {
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
  peers_.meet_readers();  // all have recorded it
  for (const Slot* slots : events_) {
    slots[slot].added.hold(sums_);
  }
  add_own_parts(peers_, parts_, slots_[slot].of_ranks, parts_.matrices_of(place), held_,
                sums_.get());
  slots_[slot].summed.record(sums_);
}

void GradientSlots::complete() const {
  for (const Slot& slot : slots_) {
    slot.summed.hold(passes_);
  }
}

}  // namespace winnow::train::cuda
