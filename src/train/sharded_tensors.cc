#include "train/sharded_tensors.h"

#include <algorithm>
#include <cassert>
#include <functional>
#include <map>
#include <utility>

namespace winnow::train {

std::vector<ShardedTensors::Place> ShardedTensors::places_of(const Sharding& sharding) {
  std::size_t outside = 0;
  for (const Section& section : sharding.sections()) {
    outside += section.layer == Section::kNoLayer ? section.size : 0;
  }
  std::map<int, std::size_t> next;  // by layer: the offset of its next section
  std::vector<Place> places;
  for (const Section& section : sharding.sections()) {
    const bool of_layer = section.layer != Section::kNoLayer;
    std::size_t& at = next.try_emplace(section.layer, of_layer ? outside : 0).first->second;
    Place place{&section, at, {}};
    for (const std::size_t cut : section.partition.cuts()) {
      place.cuts.push_back(cut - section.begin);
    }
    places.push_back(std::move(place));
    at += section.size;
  }
  return places;
}

std::size_t ShardedTensors::whole_at_once(const Sharding& sharding) {
  std::size_t most = 0;
  for (const Place& place : places_of(sharding)) {
    most = std::max(most, place.at + place.section->size);
  }
  return most;
}

ShardedTensors::ShardedTensors(const model::ModelSpec& spec, const FindTensor& base,
                               Parameters& parameters, const Sharding& sharding,
                               parallel::Communicator& ranks)
    : parameters_(parameters),
      ranks_(ranks),
      places_(places_of(sharding)),
      values_(whole_at_once(sharding)),
      whole_gradients_(values_.size()) {
  bind(spec, base);
}

void ShardedTensors::bind(const model::ModelSpec& spec, const FindTensor& base) {
  const auto at = [this](const Parameter& parameter) {
    const Place& place = place_of(parameter.offset);
    return place.at + (parameter.offset - place.section->begin);
  };
  weights_ = bind_weights(spec, [&](const std::string& name) {
    if (!parameters_.contains(name)) {
      return base(name);
    }
    const Parameter& parameter = parameters_.find(name);
    const auto* const data = reinterpret_cast<const std::byte*>(values_.data() + at(parameter));
    return std::optional(TensorView{DType::f32, parameter.shape, data});
  });
  gradients_ = bind_gradients(spec, [&](const std::string& name) {
    if (!parameters_.contains(name)) {
      return std::span<float>();
    }
    const Parameter& parameter = parameters_.find(name);
    return whole_gradients_.span().subspan(at(parameter), parameter.count);
  });
}

const ShardedTensors::Place& ShardedTensors::place_of(std::size_t offset) const {
  const auto next = std::ranges::upper_bound(
      places_, offset, {}, [](const Place& place) { return place.section->begin; });
  assert(next != places_.begin());
  return *std::prev(next);
}

template <class Body>
void ShardedTensors::for_places(int layer, const Body& body) {
  for (const Place& place : places_) {
    if (place.section->layer == layer) {
      body(place, place.section->partition);
    }
  }
}

// Slower ranks are waited for, here and in reduce().
void ShardedTensors::gather(int layer) {
  ranks_.meet();
  for_places(layer, [&](const Place& place, const Partition& own) {
    const auto whole = values_.span().subspan(place.at, place.section->size);
    const auto held = parameters_.values().subspan(place.section->held, own.size());
    std::ranges::copy(held, whole.data() + (own.begin() - place.section->begin));
    ranks_.all_gather(whole, place.cuts);
  });
}

void ShardedTensors::reduce(int layer) {
  ranks_.meet();
  for_places(layer, [&](const Place& place, const Partition& own) {
    const auto whole = whole_gradients_.span().subspan(place.at, place.section->size);
    ranks_.reduce_scatter(whole, place.cuts);
    const auto sum = whole.subspan(own.begin() - place.section->begin, own.size());
    const auto held = parameters_.gradients().subspan(place.section->held, own.size());
    std::ranges::transform(held, sum, held.begin(), std::plus<>());
    std::ranges::fill(whole, 0.0F);
  });
}

void ShardedTensors::open(int layer) {
  if (open_ != layer) {
    gather(layer);
    open_ = layer;
  }
}

void ShardedTensors::close(int layer) {
  assert(open_ == layer);
  reduce(layer);
}

void ShardedTensors::begin_update() {
  std::ranges::fill(parameters_.gradients(), 0.0F);
  std::ranges::fill(whole_gradients_, 0.0F);
  gather(Section::kNoLayer);
  open_ = Section::kNoLayer;
}

void ShardedTensors::add_up() {
  reduce(Section::kNoLayer);
}

}  // namespace winnow::train
