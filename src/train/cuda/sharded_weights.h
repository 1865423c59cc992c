// The model that devices train when they share out all of its state.
#pragma once

#include "train/cuda/gradient_slots.h"
#include "train/cuda/place_matrices.h"
#include "train/cuda/student_weights.h"

namespace winnow::train::cuda {

/// Ranks hold parts of weights, gradients and moments (ZeRO's stage 3). Matrices are whole for two
/// layers at a time, and for the embedding or the head. Vectors, which are small, are whole.
class ShardedWeights : public StudentWeights, public PlaceAccess {
 public:
  /// `slots`: for the layers of all models.
  ShardedWeights(const model::ModelSpec& spec, const Parameters& parameters, const RankParts& parts,
                 const Peers& peers, LayerSlots& slots, const winnow::cuda::Stream& stream);

  [[nodiscard]] float* held_gradients() const override { return gradients_.data(); }
  void begin_update() override;
  void add_up() override;
  void end_update() override;

  void open(int place, int next) override { matrices_.open(place, next); }
  void open_gradients(int place) override { matrix_gradients_.open(place); }
  void close_gradients(int place) override { matrix_gradients_.close(place); }

 private:
  [[nodiscard]] const bf16* matrix(const Parameter& parameter) const override {
    return matrices_.address_of(parameter);
  }
  [[nodiscard]] float* gradient(const Parameter& parameter) const override;

  winnow::cuda::DeviceBuffer<float> gradients_;         // of this rank's part
  winnow::cuda::DeviceBuffer<float> vector_gradients_;  // of all vectors, of this rank's passes
  Peers::Arrays<float> vector_gradients_of_ranks_;
  PlaceMatrices matrices_;
  GradientSlots matrix_gradients_;
};

}  // namespace winnow::train::cuda
