#include "train/options.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <utility>

#include "base/error.h"
#include "model/supported.h"
#include "train/backend.h"
#include "train/fp8_matrices.h"

namespace winnow::train {
namespace {

bool is_positive(double x) {
  return std::isfinite(x) && x > 0.0;
}

void check_dms(const model::DmsConfig& dms, const TrainingOptions& options,
               const model::ModelSpec& base) {
  const auto length = static_cast<std::int64_t>(options.length);
  require(dms.window >= 0 && dms.window < length,
          "--window {}: expected 0 to {}, less than --length", dms.window, length - 1);
  require(dms.shift >= 0 && dms.shift <= dms.window + 1,
          "--shift {}: expected 0 to {}, no later than a key leaves the window", dms.shift,
          dms.window + 1);
  const int channels = base.compressing_attention().head_dim;
  require(dms.channel >= -1 && dms.channel < channels,
          "--channel {}: expected -1 to {}, the model's heads have {} channels", dms.channel,
          channels - 1, channels);
}

// Values that config.json cannot express are rejected before the training, not after it.
void check_saved_config(const TrainingOptions& options, const model::ModelSpec& base) {
  const RetrofitOptions& retrofit = *options.retrofit;
  const float offset = retrofit.dmc ? retrofit.dmc->offset : retrofit.dms.offset;
  require(retrofit.dmc || std::isfinite(retrofit.dms.scale), "--scale {}: expected a number",
          retrofit.dms.scale);
  require(std::isfinite(offset), "--offset {}: expected a number", offset);
  require(std::isfinite(retrofit.final_offset), "--final-offset {}: expected a number",
          retrofit.final_offset);
  model::ModelSpec student = student_config(options, base);
  static_cast<void>(model::format_spec(student));
  (student.dms ? student.dms->offset : student.dmc->offset) = retrofit.final_offset;
  static_cast<void>(model::format_spec(student));
}

void check_retrofit(const TrainingOptions& options, const model::ModelSpec& base) {
  const RetrofitOptions& retrofit = *options.retrofit;
  model::require_supported_decisions(student_config(options, base), "the model");
  if (retrofit.dmc) {
    require(retrofit.merge_span >= 2, "--merge-span {}: expected 2 or more", retrofit.merge_span);
    const int pooled = retrofit.dmc->pooled;
    require(pooled == 0 || (pooled >= 2 && pooled <= retrofit.merge_span),
            "--fixed-pooling: entries of {} tokens, expected 2 to {}, the --merge-span", pooled,
            retrofit.merge_span);
    require(!base.compressing_attention().values_are_keys,
            "--method dmc: the model's values are its keys, and DMC takes a channel of keys only");
  } else {
    check_dms(retrofit.dms, options, base);
  }
  constexpr double kMostCr = 1e6;  // limit of config.json
  require(retrofit.ramp.target_cr >= 1.0 && retrofit.ramp.target_cr <= kMostCr,
          "--target-cr {}: expected a compression ratio from 1 to {}", retrofit.ramp.target_cr,
          kMostCr);
  for (const auto& [flag, value] : std::initializer_list<std::pair<const char*, double>>{
           {"--spread-weight", retrofit.spread_weight},
           {"--price-gain", retrofit.price.gain},
           {"--price-rate", retrofit.price.rate},
           {"--shortfall-weight", retrofit.one_sided_weight},
           {"--excess-weight", retrofit.excess},
           {"--excess-limit", retrofit.excess_limit}}) {
    require(std::isfinite(value) && value >= 0.0, "{} {}: expected 0 or more", flag, value);
  }
  require(is_positive(retrofit.tau), "--tau {}: expected more than 0", retrofit.tau);
  require(retrofit.fade_steps >= 0 && retrofit.fade_steps < options.steps,
          "--fade-steps {}: expected 0 to {}, less than --steps", retrofit.fade_steps,
          options.steps - 1);
  require(retrofit.ramp.steps >= 0, "--ramp-steps {}: expected 0 or more", retrofit.ramp.steps);
  require(is_positive(options.decision_rate), "--decision-lr {}: expected more than 0",
          options.decision_rate);
  require(!base.dms && !base.dmc,
          "the model is retrofitted already: retrofitting starts from the model that it came from");
  check_saved_config(options, base);
}

void check_far_dropout(const FarDropout& far, const TrainingOptions& options,
                       const model::ModelSpec& base) {
  const auto length = static_cast<std::int64_t>(options.length);
  require(far.share >= 0.0 && far.share <= 1.0, "--far-dropout {}: expected 0 to 1", far.share);
  require(far.mixed >= 0.0 && far.mixed <= far.share,
          "--far-mixed {}: expected 0 to {}, a part of --far-dropout", far.mixed, far.share);
  require(far.window >= 0 && far.window < length,
          "--far-window {}: expected 0 to {}, less than --length", far.window, length - 1);
  int most = 0;
  for (const model::LayerSpec& layer : base.layers) {
    most = std::max(most, layer.attention() != nullptr ? layer.attention()->kv_heads : 0);
  }
  require(most <= LocalHeads::kMostHeads,
          "--far-dropout: the model has {} KV heads, expected at most {}", most,
          LocalHeads::kMostHeads);
  for (const auto& [layer, head] : far.far_heads) {
    require(layer >= 0 && layer < base.layer_count(),
            "--far-heads {}:{}: the model has {} layers, counted from 0", layer, head,
            base.layer_count());
    const model::AttentionSpec* attention = base.layer(layer).attention();
    const int heads = attention != nullptr ? attention->kv_heads : 0;
    require(head >= 0 && head < heads,
            "--far-heads {}:{}: the layer has {} KV heads, counted from 0", layer, head, heads);
  }
}

}  // namespace

void validate(const TrainingOptions& options, const model::ModelSpec& base) {
  require(options.steps >= 1, "--steps {}: expected 1 or more", options.steps);
  require(options.length >= 2 && options.length <= static_cast<std::size_t>(base.max_positions),
          "--length {}: expected 2 to {}, the model's positions", options.length,
          base.max_positions);
  require(options.batch >= 1, "--batch {}: expected 1 or more", options.batch);
  require(options.micro_batch >= 1 && options.batch % options.micro_batch == 0,
          "--micro-batch {}: expected a divisor of --batch {}", options.micro_batch, options.batch);
  const std::size_t parts = options.batch / options.micro_batch;
  require(options.ranks >= 1 && static_cast<std::size_t>(options.ranks) <= parts,
          "--data-parallel {}: expected 1 to {}, as many ranks as --batch {} has parts of "
          "--micro-batch {}",
          options.ranks, parts, options.batch, options.micro_batch);
  if (options.cuda_device && options.zero_stage == ZeroStage::everything) {
    require(!options.muon,
            "--zero-stage 3 with --device cuda and --optimizer muon: only CPU ranks have both");
    require(
        !base.layer_embeddings,
        "--zero-stage 3 with --device cuda: the model has embeddings for each layer, which GPUs "
        "do not share out");
  }
  const auto in_unit = [](double x) { return x >= 0.0 && x < 1.0; };
  require(in_unit(options.adamw.beta1), "--beta1 {}: expected 0 or more, less than 1",
          options.adamw.beta1);
  require(in_unit(options.adamw.beta2), "--beta2 {}: expected 0 or more, less than 1",
          options.adamw.beta2);
  require(options.adamw.epsilon > 0.0, "--epsilon {}: expected more than 0", options.adamw.epsilon);
  require(is_positive(options.learning_rate), "--lr {}: expected more than 0",
          options.learning_rate);
  require(std::isfinite(options.weight_decay) && options.weight_decay >= 0.0,
          "--weight-decay {}: expected 0 or more", options.weight_decay);
  require(options.clip >= 0.0, "--clip {}: expected 0 or more", options.clip);
  require(options.schedule.warmup >= 0, "--warmup {}: expected 0 or more", options.schedule.warmup);
  require(options.schedule.decay_share >= 0.0 && options.schedule.decay_share <= 1.0,
          "--decay-share {}: expected 0 to 1", options.schedule.decay_share);
  require(options.schedule.final_factor >= 0.0 && options.schedule.final_factor <= 1.0,
          "--final-lr {}: expected 0 to 1, a factor of --lr", options.schedule.final_factor);
  for (const model::LayerSpec& layer : base.layers) {
    const int channels = layer.attention() != nullptr ? layer.attention()->head_dim : 0;
    require(channels % 8 == 0, "the model's heads have {} channels: training needs a multiple of 8",
            channels);
  }
  require(!options.cuda_device || options.compute == DType::bf16,
          "--dtype fp32: runs on the CPU only; a CUDA device computes in bf16");
  require(!options.fp8_products || options.cuda_device,
          "--dtype fp8: runs on a CUDA device only; the CPU computes in bf16 or fp32");
  require(!options.fp8_products || options.zero_stage != ZeroStage::everything,
          "--dtype fp8 with --zero-stage 3: ranks gather weights in bf16; --zero-stage 1 has both");
  require_fp8_widths(options, base);
  if (options.muon) {
    require(in_unit(options.muon->momentum), "--momentum {}: expected 0 or more, less than 1",
            options.muon->momentum);
    require(trained_part(student_config(options, base)) == Trained::everything,
            "--optimizer muon: an adapter has no matrices that it could move");
  }
  if (options.far_dropout) {
    require(!options.retrofit, "--far-dropout: a model is retrofitted without it");
    check_far_dropout(*options.far_dropout, options, base);
  }
  if (const char* what = model::beyond_training(base)) {
    fail("the model has {}: it cannot be trained or retrofitted", what);
  }
  if (options.retrofit) {
    check_retrofit(options, base);
  } else {
    require(!base.dms && !base.dmc,
            "the model is retrofitted: the language-model loss would not keep what it has learned "
            "to evict");
  }
}

model::ModelSpec student_config(const TrainingOptions& options, const model::ModelSpec& base) {
  model::ModelSpec spec = base;
  if (options.retrofit) {
    const RetrofitOptions& retrofit = *options.retrofit;
    if (retrofit.dmc) {
      spec.dmc = retrofit.dmc;
      spec.dmc->target_cr = retrofit.ramp.target_cr;
    } else {
      spec.dms = retrofit.dms;
      spec.dms->target_cr = retrofit.ramp.target_cr;
    }
  }
  return spec;
}

}  // namespace winnow::train
