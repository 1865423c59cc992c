// Options of a training run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/dtype.h"
#include "model/config.h"
#include "ops/loss.h"
#include "train/far_dropout.h"
#include "train/muon.h"
#include "train/optimizer.h"
#include "train/schedule.h"
#include "train/zero_stage.h"

namespace winnow::train {

/// The loss that makes decisions evict enough.
enum class EvictionLoss : std::uint8_t {
  price,      // PriceControl: each kept key costs the price that leads to the target
  one_sided,  // weight * max(target share - share, 0), as in the DMS paper
};

/// The unit that must reach the target share: all layers and heads together, which evict the least
/// valuable keys first, or each layer separately (an ablation of the DMC paper).
enum class EvictionPrior : std::uint8_t { global, layer };

/// The target that the student's predictions are compared with.
enum class MainLoss : std::uint8_t {
  distillation,    // the teacher's predictions: the original model's
  language_model,  // the text, as in the DMC paper
};

/// Retrofitting a model with DMS or DMC (docs/training.md).
struct RetrofitOptions {
  model::DmsConfig dms;                 // of the student while it is trained
  std::optional<model::DmcConfig> dmc;  // instead of DMS
  int merge_span = 12;                  // DMC: window of a running average, in entries
  bool uniform_weights = false;         // DMC: equal weights in averages (an ablation of the paper)
  MainLoss main_loss = MainLoss::distillation;
  float tau = 0.1F;
  std::int64_t fade_steps = 0;  // phase 1: a borrowed channel fades out; no decisions yet
  CompressionRamp ramp;         // phase 2
  EvictionLoss eviction = EvictionLoss::price;
  EvictionPrior prior = EvictionPrior::global;
  /// Weight of the variance of a layer's eviction shares (DMC-C, an ablation of the DMC paper).
  double spread_weight = 0.0;
  PriceControl price;
  double one_sided_weight = 2.0;
  /// Neither loss can reverse a decision beyond +-limit: excess * (|logit| - limit)^2 for each.
  double excess = 1e-3;
  double excess_limit = 6.0;
  ops::Divergence divergence = ops::Divergence::forward;
  float final_offset = 5.0F;  // of the saved model: a dial between quality and CR
};

/// How activations are kept until the backward pass needs them.
enum class Activations : std::uint8_t {
  automatic,  // kept on a CUDA device with enough memory, else recomputed
  keep,
  recompute,  // every layer is recomputed from its input
};

struct TrainingOptions {
  std::int64_t steps = 0;
  std::size_t length = 0;       // tokens per sequence
  std::size_t batch = 1;        // sequences per update
  std::size_t micro_batch = 1;  // sequences at once; divides batch
  std::uint64_t seed = 0;
  int ranks = 1;  // each takes a share of a batch's groups of micro_batch sequences
  ZeroStage zero_stage = ZeroStage::moments;

  AdamWOptions adamw;
  std::optional<MuonOptions> muon;  // for the layers' matrices, instead of AdamW
  Schedule schedule;                // of both learning rates
  double learning_rate = 0.0;       // of all tensors except decisions'
  double decision_rate = 0.0;       // of decision tensors
  double weight_decay = 0.0;        // of matrices, the embedding and the head
  double clip = 1.0;                // maximum norm of gradients; decisions' separately. 0: no limit

  std::optional<int> cuda_device;  // nullopt: the CPU
  DType compute = DType::bf16;
  /// On a CUDA device: products of layers are in fp8, but for gradients of weights.
  bool fp8_products = false;
  Activations activations = Activations::automatic;

  std::optional<RetrofitOptions> retrofit;  // nullopt: the language-model loss
  std::optional<FarDropout> far_dropout;    // for a model that is not retrofitted
};

/// Throws Error naming the flag when values make no sense, alone or for this model.
void validate(const TrainingOptions& options, const model::ModelSpec& base);

/// The configuration of the model that is trained.
model::ModelSpec student_config(const TrainingOptions& options, const model::ModelSpec& base);

}  // namespace winnow::train
