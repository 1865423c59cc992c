// Weights and gradients of the model that a device trains.
#pragma once

#include "train/cuda/access.h"
#include "train/cuda/frozen_weights.h"
#include "train/cuda/held_state.h"
#include "train/cuda/muon.h"
#include "train/cuda/peers.h"
#include "train/cuda/vector_weights.h"

namespace winnow::train::cuda {

/// The tensors as passes see them, and as the optimiser sees them: the part that this rank holds.
/// All ranks call the functions of an update together.
class StudentWeights {
 public:
  /// Takes the values that `parameters` have in host memory. All must outlive this.
  StudentWeights(const model::ModelSpec& spec, const Parameters& parameters, const RankParts& parts,
                 const Peers& peers, const winnow::cuda::Stream& stream);
  virtual ~StudentWeights() = default;
  StudentWeights(const StudentWeights&) = delete;
  StudentWeights& operator=(const StudentWeights&) = delete;

  /// `frozen` has the tensors that are not trained; null: there are none.
  [[nodiscard]] DeviceWeights weights(const FrozenWeights* frozen) const;
  /// Without `with_omegas` those of DMC's omegas are not computed.
  [[nodiscard]] DeviceGradients gradients(bool with_omegas) const;
  /// Of this rank's part, in which matrices come first.
  [[nodiscard]] virtual float* held_gradients() const = 0;

  /// Sets gradients to 0.
  virtual void begin_update() = 0;
  /// Sums gradients over all ranks, for the part that this rank holds.
  virtual void add_up() = 0;
  /// Gives all ranks what an update has changed.
  virtual void end_update() = 0;

  void apply(const AdamWOptions& options, const AdamW::Update& update);
  /// Of this rank's part. `rounded` is null if it is not kept.
  [[nodiscard]] MuonArrays muon_arrays() const;

  [[nodiscard]] const HeldState& held() const { return held_; }
  Moments fetch_moments() { return held_.fetch_moments(); }
  /// Takes values and moments from host memory. end_update() must follow.
  void store(const Parameters& parameters);

 protected:
  /// Where products read a matrix of the list, and where its gradient goes.
  [[nodiscard]] virtual const bf16* matrix(const Parameter& parameter) const = 0;
  [[nodiscard]] virtual float* gradient(const Parameter& parameter) const = 0;
  /// This rank's matrices in bf16; null: they are rounded when others gather them.
  [[nodiscard]] virtual bf16* rounded() const { return nullptr; }
  /// Rounds this rank's matrices again, if it keeps them.
  void round_matrices();
  /// Brings vectors up to date. Held values of all ranks must be.
  void gather_vectors() { vectors_.gather(parts_, peers_, held_of_ranks_, stream_.get()); }

  model::ModelSpec spec_;
  const ParameterList& list_;
  const RankParts& parts_;
  const Peers& peers_;
  const winnow::cuda::Stream& stream_;
  HeldState held_;
  VectorWeights vectors_;
  Peers::Arrays<float> held_of_ranks_;  // values
};

/// Every rank has all weights and gradients, and holds moments and fp32 values of a part: ZeRO's
/// stage 1.
class WholeWeights : public StudentWeights {
 public:
  WholeWeights(const model::ModelSpec& spec, const Parameters& parameters, const RankParts& parts,
               const Peers& peers, const winnow::cuda::Stream& stream);

  [[nodiscard]] float* held_gradients() const override { return gradients_.data() + begin_; }
  void begin_update() override;
  void add_up() override;
  void end_update() override;

 private:
  [[nodiscard]] const bf16* matrix(const Parameter& parameter) const override {
    return matrices_.data() + parameter.offset;
  }
  [[nodiscard]] float* gradient(const Parameter& parameter) const override {
    return gradients_.data() + parameter.offset;
  }
  [[nodiscard]] bf16* rounded() const override {
    return begin_ < matrices_.size() ? matrices_.data() + begin_ : nullptr;
  }
  void gather_matrices() const;

  std::size_t begin_;  // of this rank's part in the flat arrays
  winnow::cuda::DeviceBuffer<bf16> matrices_;
  winnow::cuda::DeviceBuffer<float> gradients_;
  Peers::Arrays<bf16> matrices_of_ranks_;
  Peers::Arrays<float> gradients_of_ranks_;
};

}  // namespace winnow::train::cuda
