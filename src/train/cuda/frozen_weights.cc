#include "train/cuda/frozen_weights.h"

#include "train/cuda/copies.h"
#include "train/cuda_memory/weights.h"
#include "train/rounded.h"

namespace winnow::train::cuda {

FrozenWeights::FrozenWeights(const model::ModelSpec& spec, const FindTensor& find,
                             const Peers& peers, LayerSlots* slots,
                             const winnow::cuda::Stream& stream)
    : list_(spec, Trained::everything),
      parts_(frozen_parts(list_, spec, ZeroStage::everything, peers.rank(), peers.size())),
      matrices_(slots != nullptr ? held_matrices(parts_) : parts_.matrices()),
      vectors_(parts_.size() - parts_.matrices()) {
  if (slots != nullptr) {
    places_.emplace(peers, parts_, *slots, stream);
    places_->set_held(peers.share(matrices_.data()));
  }
  std::vector<float> values;
  for (const Parameter& parameter : list_.list()) {
    const TensorView tensor = *find(parameter.name);
    if (is_matrix(parameter) && tensor.dtype == DType::bf16) {
      take_matrix(parameter, tensor.as<bf16>().data());
      continue;
    }
    values.resize(parameter.count);
    widen(tensor, values);
    if (is_matrix(parameter)) {
      const auto rounded = train::rounded(values, DType::bf16);
      take_matrix(parameter, reinterpret_cast<const bf16*>(rounded.data()));
    } else {
      copy_to_device(vectors_.data() + (parameter.offset - parts_.matrices()), values.data(),
                     parameter.count * sizeof(float));
    }
  }
  winnow::cuda::wait_for_default_stream();
}

void FrozenWeights::take_matrix(const Parameter& parameter, const bf16* values) const {
  const std::size_t end = parameter.offset + parameter.count;
  if (!places_) {
    return copy_to_device(matrices_.data() + parameter.offset, values,
                          parameter.count * sizeof(bf16));
  }
  parts_.for_pieces_of(parts_.rank(), {parameter.offset, end},
                       [&](std::size_t at, std::size_t held, std::size_t count) {
                         copy_to_device(matrices_.data() + held, values + (at - parameter.offset),
                                        count * sizeof(bf16));
                       });
}

const bf16* FrozenWeights::matrix(const std::string& name) const {
  if (!list_.contains(name)) {
    return nullptr;
  }
  const Parameter& parameter = list_.find(name);
  return places_ ? places_->address_of(parameter) : matrices_.data() + parameter.offset;
}

const float* FrozenWeights::vector(const std::string& name) const {
  return list_.contains(name) ? vectors_.data() + (list_.find(name).offset - parts_.matrices())
                              : nullptr;
}

DeviceWeights FrozenWeights::view(const model::ModelSpec& spec) const {
  return bind_device_weights(
      spec, [this](const std::string& name) { return matrix(name); },
      [this](const std::string& name) { return vector(name); });
}

void FrozenWeights::open(int place, int next) {
  if (places_) {
    places_->open(place, next);
  }
}

}  // namespace winnow::train::cuda
