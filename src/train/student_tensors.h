// Weights and gradients of the model that a CPU rank trains.
#pragma once

#include <memory>

#include "parallel/communicator.h"
#include "train/layer_access.h"
#include "train/parameters.h"
#include "train/sharding.h"

namespace winnow::train {

/// The tensors as passes see them, and as the optimiser sees them: the part that this rank holds.
/// All ranks call the functions of an update, open() and close() together.
class StudentTensors : public LayerAccess {
 public:
  [[nodiscard]] const Weights& weights() const { return weights_; }
  [[nodiscard]] Gradients& gradients() { return gradients_; }

  /// Sets gradients to 0.
  virtual void begin_update() = 0;
  /// Sums gradients over all ranks, for the part that this rank holds.
  virtual void add_up() = 0;
  /// Sends this rank's updated values to the other ranks.
  virtual void end_update() = 0;

  [[nodiscard]] virtual std::span<float> held_values() = 0;
  [[nodiscard]] virtual std::span<float> held_gradients() = 0;

 protected:
  Weights weights_;
  Gradients gradients_;
};

/// `sharding` says what the rank holds of `parameters`: whole tensors are ZeRO's stage 1, parts are
/// stage 3. `base` finds the weights that are not trained. All three, and `ranks`, must outlive it.
std::unique_ptr<StudentTensors> make_student_tensors(const model::ModelSpec& spec,
                                                     const FindTensor& base, Parameters& parameters,
                                                     const Sharding& sharding,
                                                     parallel::Communicator& ranks);

}  // namespace winnow::train
