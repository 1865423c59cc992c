#include "train/cuda/activations.h"

namespace winnow::train::cuda {

LayerScratch::LayerScratch(const model::ModelSpec& spec, std::size_t tokens)
    : OwnedMemory(bytes(spec, tokens)), ScratchBuffers(spec, tokens, memory.data()) {
  if (const model::RecurrentSpec* recurrent = spec.recurrent()) {
    delta = {recurrent->heads, static_cast<int>(tokens), delta_memory};
  }
}

}  // namespace winnow::train::cuda
