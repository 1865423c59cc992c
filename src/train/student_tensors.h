// Weights and gradients of the model that a CPU rank trains.
#pragma once

#include <memory>

#include "parallel/communicator.h"
#include "train/layer_access.h"
#include "train/parameters.h"
#include "train/sharding.h"

namespace winnow::train {

/// What passes see of the tensors, and what the optimiser sees of them: what this rank holds. All
/// ranks call the functions of an update, open() and close() together.
class StudentTensors : public LayerAccess {
 public:
  [[nodiscard]] const Weights& weights() const { return weights_; }
  [[nodiscard]] Gradients& gradients() { return gradients_; }

  /// Gradients become 0.
  virtual void begin_update() = 0;
  /// What this rank holds of the gradients becomes the sum of all ranks'.
  virtual void add_up() = 0;
  /// Other ranks get what this one has updated.
  virtual void end_update() = 0;

  [[nodiscard]] virtual std::span<float> held_values() = 0;
  [[nodiscard]] virtual std::span<float> held_gradients() = 0;

 protected:
  Weights weights_;
  Gradients gradients_;
};

/// What of `parameters` the rank holds says `sharding`: whole ones are ZeRO's stage 1, others stage
/// 3. `base` finds the weights that are not trained. All three, and `ranks`, must outlive it.
std::unique_ptr<StudentTensors> make_student_tensors(const model::ModelSpec& spec,
                                                     const FindTensor& base, Parameters& parameters,
                                                     const Sharding& sharding,
                                                     parallel::Communicator& ranks);

}  // namespace winnow::train
