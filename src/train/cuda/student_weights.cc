#include "train/cuda/student_weights.h"

#include <algorithm>
#include <cassert>

#include "train/cuda/copies.h"
#include "train/cuda/optimizer.h"

namespace winnow::train::cuda {
namespace {

// What this rank holds of parameters in host memory.
std::span<const float> held_of(const Parameters& parameters, const RankParts& parts) {
  assert(!parameters.is_whole() || parts.own().sections().size() == 1);
  return parameters.is_whole() ? parts.own().sections().front().partition.own(parameters.values())
                               : parameters.values();
}

}  // namespace

StudentWeights::StudentWeights(const model::ModelSpec& spec, const Parameters& parameters,
                               const RankParts& parts, const Peers& peers,
                               const winnow::cuda::Stream& stream)
    : spec_(spec),
      list_(parameters),
      parts_(parts),
      peers_(peers),
      stream_(stream),
      held_(held_of(parameters, parts)),
      vectors_(spec, parameters, parts),
      held_of_ranks_(peers.share<float>(held_.values())) {}

DeviceWeights StudentWeights::weights(const FrozenWeights* frozen) const {
  return bind_device_weights(
      spec_,
      [&](const std::string& name) -> const bf16* {
        if (!list_.contains(name)) {
          return frozen != nullptr ? frozen->matrix(name) : nullptr;
        }
        const Parameter& parameter = list_.find(name);
        return is_matrix(parameter) ? matrix(parameter) : vectors_.rows(parameter);
      },
      [&](const std::string& name) -> const float* {
        if (!list_.contains(name)) {
          return frozen != nullptr ? frozen->vector(name) : nullptr;
        }
        return vectors_.vector(list_.find(name));
      });
}

DeviceGradients StudentWeights::gradients(bool with_omegas) const {
  DeviceGradients gradients{};
  visit_tensors(spec_, gradients, [&](const std::string& name, const Shape&, float*& tensor) {
    tensor = list_.contains(name) ? gradient(list_.find(name)) : nullptr;
  });
  if (spec_.tied_embeddings) {
    gradients.head = gradients.embedding;
  }
  for (DeviceLayerGradients& layer : gradients.layers) {
    if (!with_omegas) {
      layer.omega = nullptr;
      layer.omega_bias = nullptr;
    }
  }
  return gradients;
}

void StudentWeights::apply(const AdamWOptions& options, const AdamW::Update& update) {
  const auto apply_to = [&](std::size_t begin, std::size_t end, bf16* rounded_values) {
    held_.apply(options, update, parts_.own().held({begin, end}), held_gradients(), rounded_values,
                stream_.get());
  };
  const std::size_t middle = std::clamp(parts_.matrices(), update.begin, update.end);
  apply_to(update.begin, middle, rounded());
  apply_to(middle, update.end, nullptr);  // vectors are not rounded
}

MuonArrays StudentWeights::muon_arrays() const {
  return {held_.values(), rounded(), held_gradients(), held_.first_moments()};
}

void StudentWeights::store(const Parameters& parameters) {
  held_.store(held_of(parameters, parts_));
  round_matrices();
}

void StudentWeights::round_matrices() {
  if (rounded() != nullptr) {
    const auto [begin, end] = parts_.own().held({0, parts_.matrices()});
    round_values(rounded() + begin, held_.values() + begin, end - begin, stream_.get());
  }
}

WholeWeights::WholeWeights(const model::ModelSpec& spec, const Parameters& parameters,
                           const RankParts& parts, const Peers& peers,
                           const winnow::cuda::Stream& stream)
    : StudentWeights(spec, parameters, parts, peers, stream),
      begin_(parts.own().sections().front().partition.begin()),
      matrices_(parts.matrices()),
      gradients_(parts.size()),
      matrices_of_ranks_(peers.share<bf16>(matrices_.data())),
      gradients_of_ranks_(peers.share<float>(gradients_.data())) {
  round_matrices();
}

void WholeWeights::begin_update() {
  clear_async(gradients_, stream_.get());
}

void WholeWeights::add_up() {
  if (peers_.size() == 1) {
    return;
  }
  peers_.settle(stream_);  // all gradients are complete
  peers_.sum_own_part(gradients_of_ranks_, parts_.own().sections().front().partition.cuts(),
                      held_gradients(), /*add=*/false, stream_.get());
}

void WholeWeights::end_update() {
  if (peers_.size() == 1) {
    return gather_vectors();
  }
  peers_.settle(stream_);  // all have updated their parts
  gather_matrices();
  gather_vectors();
  peers_.settle(stream_);  // all have read
}

void WholeWeights::gather_matrices() const {
  parts_.for_pieces(
      {0, parts_.matrices()}, [this](int rank, std::size_t at, std::size_t, std::size_t count) {
        peers_.copy(matrices_of_ranks_, rank, at, matrices_.data() + at, count, stream_.get());
      });
}

}  // namespace winnow::train::cuda
