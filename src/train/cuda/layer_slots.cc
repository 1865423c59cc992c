#include "train/cuda/layer_slots.h"

namespace winnow::train::cuda {

LayerSlots::LayerSlots(std::size_t elements, const winnow::cuda::Stream& passes) : passes_(passes) {
  for (Slot& slot : slots_) {
    slot.memory = winnow::cuda::DeviceBuffer<bf16>(elements);
  }
}

// Work that passes have launched until now may read what was in the buffer.
void LayerSlots::require_filled(const void* model, int layer, const Fill& fill) {
  Slot& slot = slots_[static_cast<std::size_t>(layer % 2)];
  if (slot.model == model && slot.layer == layer) {
    return;
  }
  passed_.record(passes_);
  passed_.hold(copies_);
  fill(layer, slot.memory.data(), copies_.get());
  slot.filled.record(copies_);
  slot.model = model;
  slot.layer = layer;
}

void LayerSlots::open(const void* model, int layer, int next, const Fill& fill) {
  require_filled(model, layer, fill);
  slot_of(layer).filled.hold(passes_);
  if (next >= 0) {
    require_filled(model, next, fill);
  }
}

void LayerSlots::forget(const void* model) {
  for (Slot& slot : slots_) {
    slot.model = slot.model == model ? nullptr : slot.model;
  }
}

}  // namespace winnow::train::cuda
