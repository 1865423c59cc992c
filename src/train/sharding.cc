#include "train/sharding.h"

#include <algorithm>
#include <charconv>

namespace winnow::train {
namespace {

// Adjacent tensors of one layer and role, and their end. Embedding and head are used one after the
// other, so each is a run.
struct TensorRun {
  int layer;
  Role role;
  std::size_t begin;
  std::size_t end;
};

std::vector<TensorRun> runs_of(const ParameterList& list) {
  std::vector<TensorRun> runs;
  for (const Parameter& parameter : list.list()) {
    const int layer = layer_of(parameter.name);
    if (runs.empty() || runs.back().layer != layer || runs.back().role != parameter.role ||
        parameter.role == Role::embedding) {
      if (!runs.empty()) {
        runs.back().end = parameter.offset;
      }
      runs.push_back({layer, parameter.role, parameter.offset, list.size()});
    }
  }
  return runs;
}

}  // namespace

int layer_of(std::string_view name) {
  constexpr std::string_view kLayers = "model.layers.";
  int layer = Section::kNoLayer;
  if (name.starts_with(kLayers)) {
    std::from_chars(name.data() + kLayers.size(), name.data() + name.size(), layer);
  }
  return layer;
}

Sharding::Sharding(const ParameterList& list, ZeroStage stage, int rank, int ranks,
                   bool whole_matrices)
    : end_(list.size()) {
  std::vector<TensorRun> runs{{Section::kNoLayer, Role::embedding, 0, list.size()}};
  if (stage == ZeroStage::everything) {
    runs = runs_of(list);
  }
  std::size_t held = 0;
  for (const TensorRun& run : runs) {
    const Partition partition(list, {run.begin, run.end}, rank, ranks, whole_matrices);
    sections_.push_back({run.layer, run.begin, run.end - run.begin, held, partition});
    held += partition.size();
  }
}

std::size_t Sharding::held_before(std::size_t at) const {
  std::size_t count = 0;
  for (const Section& section : sections_) {
    const Partition& own = section.partition;
    count += std::clamp(at, own.begin(), own.end()) - own.begin();
  }
  return count;
}

void Sharding::copy_held(std::size_t offset, std::span<const float> values,
                         std::span<float> held) const {
  for (const Section& section : sections_) {
    const auto [begin, end] = section.partition.own({offset, offset + values.size()});
    if (begin < end) {
      std::ranges::copy(values.subspan(begin - offset, end - begin),
                        held.data() + section.held + (begin - section.partition.begin()));
    }
  }
}

}  // namespace winnow::train
