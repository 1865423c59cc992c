// Training step by step.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "model/checkpoint.h"
#include "train/backend.h"
#include "train/eviction_control.h"
#include "train/packing.h"
#include "train/sharding.h"

namespace winnow::train {

/// The evictions of one update.
struct EvictionReport {
  double target = 0.0;         // share of keys to evict
  double share = 0.0;          // share of keys that were marked
  double price = 0.0;          // EvictionLoss::price
  std::vector<double> shares;  // [layers * decisions per layer]
};

/// The results of one update.
struct StepReport {
  std::int64_t step = 0;  // updates done, this one included
  double loss = 0.0;      // nats per token: cross entropy, or divergence from the teacher
  double rate = 0.0;      // the learning rate
  double norm = 0.0;      // of the gradients before clipping, except decisions
  double decision_norm = 0.0;
  double seconds = 0.0;
  std::int64_t tokens = 0;                 // in this update
  double utilization = 0.0;                // of the device's peak (MFU); 0: unknown
  std::optional<EvictionReport> eviction;  // retrofitting, from phase 2 on
};

/// Throws Error, naming the key, unless Trainer::save_state() wrote `file` with this recipe.
void require_recipe(const std::filesystem::path& file, const nlohmann::ordered_json& recipe);

/// A model in training: parameters, optimiser, data and their state. All results
/// follow from the options, the data and the base model: on the CPU to the last bit, on any number
/// of threads, and on any number of ranks except for the order of sums.
/// Each rank has its own trainer: it computes its share of the parts of a batch, and updates
/// the parameters that it holds (data parallelism with ZeRO). Callers use rank 0's as if it were
/// alone; the others follow() it.
class Trainer {
 public:
  /// Training starts from `base`, also the teacher; `shards` and `ranks` must outlive this.
  Trainer(const TrainingOptions& options, const model::Checkpoint& base, const Shards& shards,
          parallel::Communicator& ranks = parallel::single_rank());
  /// Rank 0's destructor ends follow() in the others.
  ~Trainer();
  Trainer(const Trainer&) = delete;  // members point to each other
  Trainer& operator=(const Trainer&) = delete;

  /// For ranks other than 0: does what rank 0's trainer does, until that is destroyed.
  void follow();

  /// The divergence of the student from its teacher before any update, in nats per token,
  /// over one sequence: any value but 0 (to rounding) is a bug. Retrofitting only. Throws Error
  /// naming the layer when it is not finite.
  double check_student_is_teacher();

  /// One update. Throws Error naming step and layer when the loss is not finite; then nothing has
  /// changed.
  StepReport step();
  [[nodiscard]] std::int64_t steps_done() const { return steps_done_; }

  /// Writes all that a later process needs to continue, atomically. `recipe` describes how this run
  /// was set up.
  void save_state(const std::filesystem::path& file, const nlohmann::ordered_json& recipe) const;
  /// Continues from `file`. Throws the errors of require_recipe(). Every rank calls it.
  void load_state(const std::filesystem::path& file, const nlohmann::ordered_json& recipe);

  [[nodiscard]] const model::ModelSpec& spec() const { return spec_; }
  [[nodiscard]] const TrainingOptions& options() const { return options_; }
  /// The whole parameters, up to date; on rank 0 only.
  [[nodiscard]] std::shared_ptr<const Parameters> parameters() const;
  [[nodiscard]] const model::Checkpoint& base() const { return base_; }

 private:
  /// Tasks that rank 0 and its followers do together.
  enum class Task : std::uint8_t { check, step, gather_values, gather_state, end };
  void announce(Task task) const;
  void do_task(Task task);
  /// Rank 0 receives a flat array, piece after piece; each rank holds a part of it.
  using TakePiece = std::function<void(std::span<const float>)>;
  void gather(std::span<const float> held, const TakePiece& take) const;
  void gather_values(const TakePiece& take) const;
  /// The same for all arrays of a state, in the order of their names there.
  static constexpr std::array kStateArrays{"first_moments", "second_moments", "values"};
  void gather_state_array(std::string_view name, const Moments& moments,
                          const TakePiece& take) const;

  [[nodiscard]] bool fading() const;
  [[nodiscard]] DecisionPass pass_of(std::uint64_t part) const;
  [[nodiscard]] MainLoss main_loss() const;
  Batch read_part();
  std::vector<Batch> read_parts();
  void run_parts(std::span<const Batch> parts, const StepReport& report);
  void run_part(const Batch& part, std::size_t index, const StepReport& report);
  void count_marked(const PassSums& sums, EvictionReport& eviction) const;
  void update(const StepReport& report);
  void require_finite_loss(const PassSums& sums, const std::string& what) const;

  TrainingOptions options_;
  model::Checkpoint base_;
  model::ModelSpec spec_;
  FrozenTensors frozen_;
  parallel::Communicator& ranks_;
  Sharding sharding_;
  Parameters parameters_;
  std::unique_ptr<Backend> backend_;
  PackedReader reader_;

  std::int64_t steps_done_ = 0;
  std::optional<EvictionControl> eviction_;  // retrofitting
};

}  // namespace winnow::train
