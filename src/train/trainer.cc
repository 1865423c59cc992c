#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "base/random.h"

namespace winnow::train {
namespace {

Trained trained_part(const ModelConfig& config) {
  return config.dms && config.dms->source == DmsConfig::Source::adapter ? Trained::decisions
                                                                        : Trained::everything;
}

// The base model's values; an adapter's norm starts as none, and decisions as no decisions.
void initialize(Parameters& parameters, const Checkpoint& base) {
  for (const Parameter& parameter : parameters.list()) {
    const std::span<float> values = parameters.values(parameter.name);
    if (base.has(parameter.name)) {
      widen(base.tensor(parameter.name), values);
    } else {
      const bool norm = parameter.name.find("norm") != std::string::npos;
      std::ranges::fill(values, norm ? 1.0F : 0.0F);
    }
  }
}

double total_weight(std::span<const Batch> batches) {
  double sum = 0.0;
  for (const Batch& batch : batches) {
    for (const float weight : batch.weights) {
      sum += double{weight};
    }
  }
  return sum;
}

}  // namespace

Trainer::Trainer(const TrainingOptions& options, const Checkpoint& base, const Shards& shards)
    : options_(options),
      base_(base),
      config_(student_config(options, base.config())),
      frozen_(base),
      parameters_(config_, trained_part(config_)),
      optimizer_(options.adamw, parameters_.values().size()),
      gradients_(parameters_.gradient_views(config_)),
      decoder_(config_, options.micro_batch * options.length,
               options.recompute ? Keep::inputs : Keep::all),
      hidden_gradient_(options.micro_batch * options.length *
                       static_cast<std::size_t>(config_.hidden)),
      reader_(shards, options.length, config_.bos_token, options.seed) {
  initialize(parameters_, base);
  student_ = bind_weights(config_, [this](const std::string& name) {
    return parameters_.contains(name) ? std::optional(parameters_.view(name)) : frozen_.find(name);
  });
  if (options_.retrofit) {
    teacher_ =
        bind_weights(base.config(), [this](const std::string& name) { return frozen_.find(name); });
    teacher_decoder_.emplace(base.config(), options.micro_batch * options.length, Keep::nothing);
    eviction_.emplace(*options_.retrofit, config_.layers, decision_count(config_));
    decoder_.excess_limit = static_cast<float>(options_.retrofit->excess_limit);
  }
  if (options_.retrofit && options_.retrofit->uniform_weights) {
    for (LayerGradients& layer : gradients_.layers) {  // they stay 0, and omega one half
      layer.omega = {};
      layer.omega_bias = {};
    }
  }
  context_.compute = options.compute;
  context_.workspace = &workspace_;
}

bool Trainer::fading() const {
  return options_.retrofit && steps_done_ < options_.retrofit->fade_steps;
}

DecisionPass Trainer::pass_of(std::uint64_t part) const {
  DecisionPass pass;
  if (!options_.retrofit) {
    return pass;
  }
  if (fading()) {
    pass.fade =
        1.0F - static_cast<float>(steps_done_) / static_cast<float>(options_.retrofit->fade_steps);
    return pass;
  }
  pass.mode = DecisionPass::Mode::sampled;
  pass.tau = options_.retrofit->tau;
  pass.merge_span = options_.retrofit->merge_span;
  const auto step = static_cast<std::uint64_t>(steps_done_);
  pass.noise = mix64(options_.seed ^ mix64(mix64(step) + part));
  return pass;
}

double Trainer::check_student_is_teacher() {
  const PackingPosition position = reader_.position();
  const Batch batch = read_part();
  reader_.seek(position);
  const double total = std::max(1.0, total_weight({&batch, 1}));
  DecisionPass pass;
  if (trained_part(config_) == Trained::decisions) {
    pass.mode = DecisionPass::Mode::hard;
  }
  const double loss = forward(batch, pass, false);
  std::ranges::fill(parameters_.gradients(), 0.0F);  // the loss added its own
  return loss / total;
}

double Trainer::forward(const Batch& batch, const DecisionPass& pass, bool language_model) {
  decoder_.forward(context_, student_, batch, pass);
  const ops::Matrix<float> gradient(hidden_gradient_.data(), batch.size(),
                                    static_cast<std::size_t>(config_.hidden));
  const HeadInput student{&student_, decoder_.hidden()};
  if (!teacher_ || language_model) {
    return language_model_loss(context_, config_, batch, student, gradients_, gradient);
  }
  teacher_decoder_->forward(context_, *teacher_, batch, {});
  const HeadInput teacher{&*teacher_, teacher_decoder_->hidden()};
  return distillation_loss(context_, config_, batch, options_.retrofit->divergence, student,
                           teacher, gradients_, gradient);
}

void Trainer::backward(const Batch& batch, const DecisionPass& pass, const StepReport& report) {
  const ops::Matrix<float> gradient(hidden_gradient_.data(), batch.size(),
                                    static_cast<std::size_t>(config_.hidden));
  std::vector<DecisionLoss> losses;
  if (report.eviction) {
    losses = eviction_->losses(decoder_.decided().marked, batch.size(),
                               options_.batch / options_.micro_batch);
  }
  decoder_.backward(context_, student_, batch, pass, losses, gradients_, gradient);
}

StepReport Trainer::step() {
  const auto start = std::chrono::steady_clock::now();
  const PackingPosition position = reader_.position();
  StepReport report;
  report.step = steps_done_ + 1;
  report.rate = options_.learning_rate * options_.schedule.factor(steps_done_);
  if (eviction_ && !fading()) {
    auto& eviction = report.eviction.emplace();
    eviction.target = options_.retrofit->ramp.share(steps_done_ - options_.retrofit->fade_steps);
    eviction_->begin(eviction.target);
    eviction.price = eviction_->price();
  }
  std::ranges::fill(parameters_.gradients(), 0.0F);
  try {
    const std::vector<Batch> parts = read_parts();
    for (std::size_t i = 0; i < parts.size(); ++i) {
      run_part(parts[i], i, report);
    }
    update(report);
  } catch (...) {
    reader_.seek(position);
    throw;
  }
  if (report.eviction) {
    eviction_->finish(report.eviction->shares);
  }
  ++steps_done_;
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

Batch Trainer::read_part() {
  Batch part = reader_.next(options_.micro_batch);
  for (const std::int32_t token : part.tokens) {
    require(token >= 0 && token < config_.vocab,
            "the training data has a token {}, the model a vocabulary of {}", token, config_.vocab);
  }
  return part;
}

// The update's sequences in parts of micro_batch; their weights add up to 1, so that losses are
// means.
std::vector<Batch> Trainer::read_parts() {
  std::vector<Batch> parts;
  for (std::size_t i = 0; i < options_.batch; i += options_.micro_batch) {
    parts.push_back(read_part());
  }
  const double total = std::max(1.0, total_weight(parts));
  for (Batch& part : parts) {
    for (float& weight : part.weights) {
      weight = static_cast<float>(double{weight} / total);
    }
  }
  return parts;
}

void Trainer::run_part(const Batch& part, std::size_t index, StepReport& report) {
  const bool language_model =
      !options_.retrofit || options_.retrofit->main_loss == MainLoss::language_model;
  const DecisionPass pass = pass_of(index);
  const double loss = forward(part, pass, language_model);
  require_finite(loss, report);
  report.loss += loss;
  report.tokens += static_cast<std::int64_t>(part.size());
  if (report.eviction) {
    count_marked(*report.eviction);
  }
  backward(part, pass, report);
}

void Trainer::count_marked(EvictionReport& eviction) const {
  const auto& marked = decoder_.decided().marked;
  eviction.shares.resize(marked.size());
  for (std::size_t d = 0; d < marked.size(); ++d) {
    const double share =
        static_cast<double>(marked[d]) / static_cast<double>(options_.batch * options_.length);
    eviction.shares[d] += share;
    eviction.share += share / static_cast<double>(marked.size());
  }
}

void Trainer::require_finite(double loss, const StepReport& report) const {
  if (std::isfinite(loss)) {
    return;
  }
  // input(layers) is the last layer's output.
  int layer = 0;
  const auto finite = [](ops::Matrix<const float> x) {
    return std::all_of(x.data, x.data + x.rows * x.cols, [](float v) { return std::isfinite(v); });
  };
  while (layer <= config_.layers && finite(decoder_.input(layer))) {
    ++layer;
  }
  const std::string where = layer == 0                ? "the embedding"
                            : layer <= config_.layers ? fmt::format("layer {}", layer - 1)
                                                      : "the head";
  fail("step {}: the loss is not finite; the first values that are not come from {}", report.step,
       where);
}

// Decisions are clipped apart from the rest: the decision scale makes their gradients large.
void Trainer::update(StepReport& report) {
  const auto norm_of = [this](Role role) {
    const auto [begin, end] = parameters_.range(role);
    return sum_of_squares(parameters_.gradients().subspan(begin, end - begin));
  };
  report.norm = std::sqrt(norm_of(Role::matrix) + norm_of(Role::vector));
  report.decision_norm = std::sqrt(norm_of(Role::decision));
  require(std::isfinite(report.norm) && std::isfinite(report.decision_norm),
          "step {}: the loss is finite, its gradient is not", report.step);
  const auto apply = [&](Role role, std::int64_t step, double rate, double decay, double norm) {
    const auto [begin, end] = parameters_.range(role);
    optimizer_.apply({begin, end, step, rate, decay, clip_factor(norm, options_.clip)},
                     parameters_.values(), parameters_.gradients());
  };
  apply(Role::matrix, report.step, report.rate, options_.weight_decay, report.norm);
  apply(Role::vector, report.step, report.rate, 0.0, report.norm);
  if (report.eviction) {  // before, decisions wait
    const double rate = options_.decision_rate * options_.schedule.factor(steps_done_);
    apply(Role::decision, report.step - options_.retrofit->fade_steps, rate, 0.0,
          report.decision_norm);
  }
}

}  // namespace winnow::train
