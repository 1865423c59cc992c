#include "train/student_tensors.h"

#include <algorithm>

#include "train/sharded_tensors.h"

namespace winnow::train {
namespace {

// Every rank has all values and gradients, and updates a part of them: ZeRO's stage 1.
class WholeTensors : public StudentTensors {
 public:
  WholeTensors(const model::ModelSpec& spec, const FindTensor& base, Parameters& parameters,
               const Partition& partition, parallel::Communicator& ranks)
      : parameters_(parameters), partition_(partition), ranks_(ranks) {
    weights_ = bind_weights(spec, [&](const std::string& name) {
      return parameters.contains(name) ? std::optional(parameters.view(name)) : base(name);
    });
    gradients_ = parameters.gradient_views(spec);
  }

  void begin_update() override { std::ranges::fill(parameters_.gradients(), 0.0F); }
  void add_up() override {
    ranks_.meet();  // others may still compute
    ranks_.reduce_scatter(parameters_.gradients(), partition_.cuts());
  }
  void end_update() override {
    ranks_.meet();  // others may not have finished their updates
    ranks_.all_gather(parameters_.values(), partition_.cuts());
  }
  [[nodiscard]] std::span<float> held_values() override {
    return partition_.own(parameters_.values());
  }
  [[nodiscard]] std::span<float> held_gradients() override {
    return partition_.own(parameters_.gradients());
  }

 private:
  Parameters& parameters_;
  const Partition& partition_;
  parallel::Communicator& ranks_;
};

}  // namespace

std::unique_ptr<StudentTensors> make_student_tensors(const model::ModelSpec& spec,
                                                     const FindTensor& base, Parameters& parameters,
                                                     const Sharding& sharding,
                                                     parallel::Communicator& ranks) {
  if (parameters.is_whole()) {
    return std::make_unique<WholeTensors>(spec, base, parameters,
                                          sharding.sections().front().partition, ranks);
  }
  return std::make_unique<ShardedTensors>(spec, base, parameters, sharding, ranks);
}

}  // namespace winnow::train
