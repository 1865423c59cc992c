#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>

#include "base/error.h"
#include "base/random.h"
#include "train/flops.h"

namespace winnow::train {
namespace {

// Copies the base model's values; an adapter's norm starts neutral, and decisions start off.
void initialize(Parameters& parameters, const model::Checkpoint& base) {
  for (const Parameter& parameter : parameters.list()) {
    Buffer<float> values(parameter.count);
    if (base.has(parameter.name)) {
      widen(base.tensor(parameter.name), values.span());
    } else {
      const bool norm = parameter.name.find("norm") != std::string::npos;
      std::ranges::fill(values, norm ? 1.0F : 0.0F);
    }
    parameters.set(parameter.offset, values.span());
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

Trainer::Trainer(const TrainingOptions& options, const model::Checkpoint& base,
                 const Shards& shards, parallel::Communicator& ranks)
    : options_(options),
      base_(base),
      spec_(student_config(options, base.spec())),
      frozen_(base),
      ranks_(ranks),
      sharding_(ParameterList(spec_, trained_part(spec_)), options.zero_stage, ranks.rank(),
                ranks.size(), options.muon.has_value()),
      parameters_(spec_, trained_part(spec_),
                  options.zero_stage == ZeroStage::everything ? &sharding_ : nullptr),
      reader_(shards, options.length, spec_.bos_token, options.seed) {
  initialize(parameters_, base);
  backend_ = make_backend(
      options, base.spec(), [this](const std::string& name) { return frozen_.find(name); },
      parameters_, ranks);
  if (options_.retrofit) {
    eviction_.emplace(*options_.retrofit, spec_.compressing_before(spec_.layer_count()),
                      decision_count(spec_));
  }
}

// A failing rank ends the group, so nobody follows any more.
Trainer::~Trainer() {
  if (std::uncaught_exceptions() > 0) {
    return;
  }
  try {
    announce(Task::end);
  } catch (const std::exception&) {
  }
}

void Trainer::announce(Task task) const {
  if (ranks_.size() > 1 && ranks_.rank() == 0) {
    ranks_.meet();  // they may be loading
    ranks_.broadcast(std::as_writable_bytes(std::span(&task, 1)));
  }
}

void Trainer::follow() {
  for (Task task{}; task != Task::end; do_task(task)) {
    ranks_.meet();
    ranks_.broadcast(std::as_writable_bytes(std::span(&task, 1)));
  }
}

void Trainer::do_task(Task task) {
  switch (task) {
    case Task::check:
      check_student_is_teacher();
      break;
    case Task::step:
      step();
      break;
    case Task::gather_values:
      gather_values({});
      break;
    case Task::gather_state: {
      const Moments moments = backend_->fetch_moments();
      for (const char* name : kStateArrays) {
        gather_state_array(name, moments, {});
      }
      break;
    }
    case Task::end:
      break;
  }
}

std::shared_ptr<const Parameters> Trainer::parameters() const {
  announce(Task::gather_values);
  if (parameters_.is_whole()) {
    backend_->fetch_values();
    return {std::shared_ptr<const Parameters>(), &parameters_};
  }
  auto whole = std::make_shared<Parameters>(spec_, trained_part(spec_));
  std::size_t offset = 0;
  gather_values([&](std::span<const float> piece) {
    whole->set(offset, piece);
    offset += piece.size();
  });
  return whole;
}

MainLoss Trainer::main_loss() const {
  return options_.retrofit ? options_.retrofit->main_loss : MainLoss::language_model;
}

bool Trainer::fading() const {
  return options_.retrofit && steps_done_ < options_.retrofit->fade_steps;
}

DecisionPass Trainer::pass_of(std::uint64_t part) const {
  DecisionPass pass;
  const auto step = static_cast<std::uint64_t>(steps_done_);
  pass.noise = mix64(options_.seed ^ mix64(mix64(step) + part));
  if (!options_.retrofit) {
    pass.far_dropout = options_.far_dropout ? &*options_.far_dropout : nullptr;
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
  return pass;
}

double Trainer::check_student_is_teacher() {
  announce(Task::check);
  const PackingPosition position = reader_.position();
  const Batch batch = read_part();
  reader_.seek(position);
  // Every rank uses the same sequence.
  const double total = std::max(1.0, total_weight({&batch, 1})) * ranks_.size();
  DecisionPass pass;
  if (trained_part(spec_) == Trained::decisions) {
    pass.mode = DecisionPass::Mode::hard;
  }
  backend_->begin_update();
  backend_->forward(batch, pass, MainLoss::distillation);
  const PassSums sums = backend_->finish();
  require_finite_loss(sums, "before the first step");
  return sums.loss / total;
}

StepReport Trainer::step() {
  announce(Task::step);
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
  try {
    const std::vector<Batch> parts = read_parts();
    report.tokens = static_cast<std::int64_t>(options_.batch * options_.length);
    backend_->begin_update();
    run_parts(parts, report);
    const PassSums sums = backend_->finish();
    const std::string step = fmt::format("step {}", report.step);
    require_finite_loss(sums, step);
    require(std::isfinite(sums.norm) && std::isfinite(sums.decision_norm),
            "{}: the loss is finite, its gradient is not", step);
    report.loss = sums.loss;
    report.norm = sums.norm;
    report.decision_norm = sums.decision_norm;
    if (report.eviction) {
      count_marked(sums, *report.eviction);
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
  if (const double peak = backend_->peak_flops() * ranks_.size(); peak > 0.0) {
    const double flops =
        flops_per_token(options_, base_.spec()) * static_cast<double>(report.tokens);
    report.utilization = flops / report.seconds / peak;
  }
  return report;
}

Batch Trainer::read_part() {
  Batch part = reader_.next(options_.micro_batch);
  const auto& of_layers = spec_.layer_embeddings;
  const int vocab = of_layers ? std::min(spec_.vocab, of_layers->vocab) : spec_.vocab;
  for (const std::int32_t token : part.tokens) {
    require(token >= 0 && token < vocab,
            "the training data has a token {}, the model a vocabulary of {}", token, vocab);
  }
  return part;
}

// Splits the update's sequences into parts of micro_batch; weights sum to 1 over all parts, so that
// losses are means.
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

// Runs this rank's share. Ranks exchange layers within a part, so all run equally many parts.
void Trainer::run_parts(std::span<const Batch> parts, const StepReport& report) {
  const auto [first, last] = share_of(parts.size(), ranks_.rank(), ranks_.size());
  for (std::size_t i = first; i < last; ++i) {
    run_part(parts[i], i, report);
  }
  const auto ranks = static_cast<std::size_t>(ranks_.size());
  const std::size_t most = (parts.size() + ranks - 1) / ranks;
  for (std::size_t i = last - first; i < most; ++i) {
    backend_->skip_part();
  }
}

void Trainer::run_part(const Batch& part, std::size_t index, const StepReport& report) {
  backend_->forward(part, pass_of(index), main_loss());
  std::vector<DecisionLoss> losses;
  if (report.eviction) {
    const auto marked =
        eviction_->counts_matter() ? backend_->marked() : std::vector<std::int64_t>();
    losses = eviction_->losses(marked, part.size(), options_.batch / options_.micro_batch);
  }
  backend_->backward(losses);
}

void Trainer::count_marked(const PassSums& sums, EvictionReport& eviction) const {
  for (const std::int64_t marked : sums.marked) {
    const double share =
        static_cast<double>(marked) / static_cast<double>(options_.batch * options_.length);
    eviction.shares.push_back(share);
    eviction.share += share / static_cast<double>(sums.marked.size());
  }
}

void Trainer::require_finite_loss(const PassSums& sums, const std::string& what) const {
  const int place = sums.not_finite;
  const std::string where = place == 0                     ? "the embedding"
                            : place <= spec_.layer_count() ? fmt::format("layer {}", place - 1)
                                                           : "the head";
  require(std::isfinite(sums.loss),
          "{}: the loss is not finite; the first values that are not come from {}", what, where);
}

// Decisions are clipped separately from the rest: the decision scale makes their gradients large.
void Trainer::update(const StepReport& report) {
  const auto apply = [&](Role role, std::int64_t step, double rate, double decay, double norm) {
    const auto [begin, end] = parameters_.range(role);
    backend_->apply(AdamW::Update{begin, end, step, rate, decay, clip_factor(norm, options_.clip)});
  };
  apply(Role::embedding, report.step, report.rate, options_.weight_decay, report.norm);
  if (options_.muon) {
    backend_->apply(MuonUpdate{.rate = report.rate,
                               .decay = options_.weight_decay,
                               .gradient_factor = clip_factor(report.norm, options_.clip)});
  } else {
    apply(Role::matrix, report.step, report.rate, options_.weight_decay, report.norm);
  }
  apply(Role::vector, report.step, report.rate, 0.0, report.norm);
  if (report.eviction) {  // decisions do not change before that
    const double rate = options_.decision_rate * options_.schedule.factor(steps_done_);
    apply(Role::decision, report.step - options_.retrofit->fade_steps, rate, 0.0,
          report.decision_norm);
  }
  backend_->end_update();
}

}  // namespace winnow::train
