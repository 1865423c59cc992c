// The device that computes the passes and updates of training: the CPU, or a CUDA device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model/checkpoint.h"
#include "parallel/single_rank.h"
#include "train/batch.h"
#include "train/decisions.h"
#include "train/muon.h"
#include "train/optimizer.h"
#include "train/options.h"
#include "train/parameters.h"

namespace winnow::train {

/// Sums over the passes of an update, and over all ranks.
struct PassSums {
  double loss = 0.0;                 // sum of weights times nats
  std::vector<std::int64_t> marked;  // [layers * decisions per layer]; empty: nothing was decided
  double norm = 0.0;                 // of the gradients, except those of decisions
  double decision_norm = 0.0;
  /// If the loss is not finite, where the first values that are not finite come from: 0 is the
  /// embedding, n > 0 is layer n - 1, and the number after the last layer is the head.
  int not_finite = 0;
};

/// Moments of AdamW in host memory, in the order of Parameters, for the part that this rank updates
/// (train/sharding.h). Muon's momentum is a first moment; second moments of its matrices are 0.
struct Moments {
  std::span<float> first;
  std::span<float> second;
};

/// Student, teacher, gradients and the optimiser's moments in one memory. Each rank of a run has
/// one, computes its own passes, and updates a part of the parameters. Device errors are thrown as
/// Error.
class Backend {
 public:
  virtual ~Backend() = default;

  /// Sets gradients and sums to 0.
  virtual void begin_update() = 0;
  /// The loss of a batch of micro_batch * length tokens, and its gradient down to the last layer.
  virtual void forward(const Batch& batch, const DecisionPass& pass, MainLoss loss) = 0;
  /// Keys that the latest forward() marked [layers * decisions per layer].
  virtual std::vector<std::int64_t> marked() = 0;
  /// Completes the gradient of the latest forward(). `losses` has one entry per layer; it is empty
  /// while nothing is decided.
  virtual void backward(std::span<const DecisionLoss> losses) = 0;
  /// Replaces forward() and backward() when other ranks have one part more than this one.
  virtual void skip_part() {}
  /// Waits for everything since begin_update(), on all ranks, which call it together.
  virtual PassSums finish() = 0;
  /// Updates a part of the parameters' flat array.
  virtual void apply(const AdamW::Update& update) = 0;
  /// Updates matrices of the layers; TrainingOptions::muon is set.
  virtual void apply(const MuonUpdate& update) = 0;
  /// Gives each rank the parameters that the others have updated. All ranks call it together.
  virtual void end_update() = 0;

  /// The device's peak floating-point operations per second; 0: unknown.
  [[nodiscard]] virtual double peak_flops() const { return 0.0; }

  /// How many of the copies in fp8 (train/fp8_matrices.h) products have read, each counted once.
  /// Tests expect all.
  [[nodiscard]] virtual std::size_t fp8_copies_read() const { return 0; }

  /// Brings the values of the parameters in host memory up to date. All ranks call it together.
  virtual void fetch_values() = 0;
  /// The moments, up to date; the backend owns the memory.
  virtual Moments fetch_moments() = 0;
  /// Reads values and moments from where the two functions above put them. All ranks call it.
  virtual void store() = 0;
};

/// Whether the whole model is trained, or only its decisions.
Trained trained_part(const model::ModelSpec& spec);

/// Throws Error if a device that `options` name cannot train the model. For commands that do long
/// work before they make a backend, which checks it, too.
void require_training_devices(const TrainingOptions& options, const model::ModelSpec& base_config);

/// A backend on the device that `options` names. `parameters` hold the initial values and must
/// outlive the backend, as must `ranks` and the tensors that `base` finds: those of the model that
/// training starts from.
std::unique_ptr<Backend> make_backend(const TrainingOptions& options,
                                      const model::ModelSpec& base_config, const FindTensor& base,
                                      Parameters& parameters,
                                      parallel::Communicator& ranks = parallel::single_rank());

}  // namespace winnow::train
