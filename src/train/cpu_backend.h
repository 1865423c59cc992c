// Training on the CPU.
#pragma once

#include <optional>

#include "train/backend.h"
#include "train/decoder.h"
#include "train/head.h"
#include "train/student_tensors.h"

namespace winnow::train {

/// Results have the same bits on any number of threads.
class CpuBackend : public Backend {
 public:
  CpuBackend(const TrainingOptions& options, const model::ModelSpec& base_config,
             const FindTensor& base, Parameters& parameters, parallel::Communicator& ranks);

  void begin_update() override;
  void forward(const Batch& batch, const DecisionPass& pass, MainLoss loss) override;
  std::vector<std::int64_t> marked() override { return decoder_.decided().marked; }
  void backward(std::span<const DecisionLoss> losses) override;
  void skip_part() override;
  PassSums finish() override;
  void apply(const AdamW::Update& update) override;
  void apply(const MuonUpdate& update) override;
  void end_update() override { student_->end_update(); }

  void fetch_values() override {}
  Moments fetch_moments() override {
    return {optimizer_.first_moments(), optimizer_.second_moments()};
  }
  void store() override {}

 private:
  double loss_of_head(MainLoss loss);
  [[nodiscard]] int first_not_finite() const;
  ops::Matrix<float> gradient();

  model::ModelSpec spec_;
  std::optional<ops::Divergence> divergence_;  // nullopt: no teacher
  Parameters& parameters_;
  parallel::Communicator& ranks_;
  Sharding sharding_;
  AdamW optimizer_;  // for the part that this rank holds
  std::optional<MuonOptions> muon_;
  std::unique_ptr<StudentTensors> student_;
  Weights teacher_;
  Decoder decoder_;
  std::optional<Decoder> teacher_decoder_;
  Buffer<float> hidden_gradient_;
  ops::Workspace workspace_;
  ops::Context context_;

  Batch batch_;  // of the latest forward()
  DecisionPass pass_;
  PassSums sums_;
};

}  // namespace winnow::train
