#include "train/device_states.h"

#include <algorithm>
#include <map>

#include "train/backend.h"
#include "train/fp8_matrices.h"
#include "train/sharding.h"

namespace winnow::train {
namespace {

constexpr std::size_t kHalf = 2;   // bytes of a bf16 weight
constexpr std::size_t kFloat = 4;  // of an fp32 weight, a gradient or a moment

// Elements of the largest layer, and of the largest tensor that belongs to none.
struct Largest {
  std::size_t layer = 0;
  std::size_t outside = 0;
};

Largest largest_of(const ParameterList& list) {
  std::map<int, std::size_t> layers;
  Largest largest;
  for (const Parameter& parameter : list.list()) {
    if (const int layer = layer_of(parameter.name); layer == Section::kNoLayer) {
      largest.outside = std::max(largest.outside, parameter.count);
    } else {
      largest.layer = std::max(largest.layer, layers[layer] += parameter.count);
    }
  }
  return largest;
}

}  // namespace

std::size_t device_state_bytes(const TrainingOptions& options, const model::ModelSpec& base,
                               ZeroStage stage) {
  const model::ModelSpec spec = student_config(options, base);
  const ParameterList trained(spec, trained_part(spec));
  const ParameterList all(base, Trained::everything);
  const auto part_of = [&](std::size_t count) {
    const auto ranks = static_cast<std::size_t>(options.ranks);
    return (count + ranks - 1) / ranks;
  };
  const std::size_t models = options.retrofit ? 2 : 1;
  if (stage == ZeroStage::moments) {
    return trained.size() * (kHalf + kFloat) + part_of(trained.size()) * 3 * kFloat +
           (models - 1) * all.size() * kHalf +
           (options.fp8_products ? fp8_bytes(options, base) : 0);
  }
  const Largest whole = largest_of(all);
  const Largest gradients = largest_of(trained);
  // An adapter's student has the teacher's embedding and head.
  const std::size_t ends = trained_part(spec) == Trained::everything ? models : 1;
  return part_of(trained.size()) * 4 * kFloat + part_of(all.size()) * (models - 1) * kHalf +
         (2 * whole.layer + ends * whole.outside) * kHalf +
         (2 * gradients.layer + gradients.outside) * kFloat;
}

}  // namespace winnow::train
