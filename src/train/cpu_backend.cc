#include "train/cpu_backend.h"

#include <algorithm>
#include <cmath>

namespace winnow::train {

CpuBackend::CpuBackend(const TrainingOptions& options, const model::ModelSpec& base_config,
                       const FindTensor& base, Parameters& parameters,
                       parallel::Communicator& ranks)
    : spec_(student_config(options, base_config)),
      parameters_(parameters),
      ranks_(ranks),
      partition_(parameters, ranks.rank(), ranks.size(), options.muon.has_value()),
      optimizer_(options.adamw, partition_.size()),
      muon_(options.muon),
      gradients_(parameters.gradient_views(spec_)),
      decoder_(spec_, options.micro_batch * options.length, host_keep(options)),
      hidden_gradient_(options.micro_batch * options.length *
                       static_cast<std::size_t>(spec_.hidden)) {
  student_ = bind_weights(spec_, [&](const std::string& name) {
    return parameters.contains(name) ? std::optional(parameters.view(name)) : base(name);
  });
  if (options.retrofit) {
    divergence_ = options.retrofit->divergence;
    teacher_ = bind_weights(base_config, base);
    teacher_decoder_.emplace(base_config, options.micro_batch * options.length, Keep::nothing);
    decoder_.excess_limit = static_cast<float>(options.retrofit->excess_limit);
  }
  if (options.retrofit && options.retrofit->uniform_weights) {
    for (LayerGradients& layer : gradients_.layers) {  // they stay 0, and omega one half
      layer.omega = {};
      layer.omega_bias = {};
    }
  }
  context_.compute = options.compute;
  context_.workspace = &workspace_;
}

void CpuBackend::begin_update() {
  std::ranges::fill(parameters_.gradients(), 0.0F);
  sums_ = {};
}

ops::Matrix<float> CpuBackend::gradient() {
  return {hidden_gradient_.data(), batch_.size(), static_cast<std::size_t>(spec_.hidden)};
}

double CpuBackend::loss_of_head(MainLoss loss) {
  const HeadInput student{&student_, decoder_.hidden()};
  if (loss == MainLoss::language_model) {
    return language_model_loss(context_, spec_, batch_, student, gradients_, gradient());
  }
  teacher_decoder_->forward(context_, teacher_, batch_, {});
  const HeadInput teacher{&teacher_, teacher_decoder_->hidden()};
  return distillation_loss(context_, spec_, batch_, *divergence_, student, teacher, gradients_,
                           gradient());
}

void CpuBackend::forward(const Batch& batch, const DecisionPass& pass, MainLoss loss) {
  batch_ = batch;
  pass_ = pass;
  decoder_.forward(context_, student_, batch_, pass_);
  const double value = loss_of_head(loss);
  if (!std::isfinite(value) && std::isfinite(sums_.loss)) {
    sums_.not_finite = first_not_finite();
  }
  sums_.loss += value;
  const auto& marked = decoder_.decided().marked;
  sums_.marked.resize(marked.size());
  std::ranges::transform(sums_.marked, marked, sums_.marked.begin(), std::plus<>());
}

// input(layers) is the last layer's output.
int CpuBackend::first_not_finite() const {
  const auto finite = [](ops::Matrix<const float> x) {
    return std::all_of(x.data, x.data + x.rows * x.cols, [](float v) { return std::isfinite(v); });
  };
  int place = 0;
  while (place <= spec_.layer_count() && finite(decoder_.input(place))) {
    ++place;
  }
  return place;
}

void CpuBackend::backward(std::span<const DecisionLoss> losses) {
  decoder_.backward(context_, student_, batch_, pass_, losses, gradients_, gradient());
}

PassSums CpuBackend::finish() {
  ranks_.meet();  // others may still compute
  ranks_.reduce_scatter(parameters_.gradients(), partition_.cuts());
  const auto squares_of = [this](Role role) {
    const auto [begin, end] = partition_.own(parameters_.range(role));
    return sum_of_squares(parameters_.gradients().subspan(begin, end - begin));
  };
  sums_.norm =
      std::sqrt(squares_of(Role::embedding) + squares_of(Role::matrix) + squares_of(Role::vector));
  sums_.decision_norm = std::sqrt(squares_of(Role::decision));
  return sum_over_ranks(ranks_, sums_);
}

void CpuBackend::apply(const AdamW::Update& update) {
  const auto [begin, end] = partition_.own({update.begin, update.end});
  AdamW::Update own = update;
  own.begin = begin - partition_.begin();
  own.end = end - partition_.begin();
  optimizer_.apply(own, partition_.own(parameters_.values()),
                   partition_.own<const float>(parameters_.gradients()));
}

void CpuBackend::apply(const MuonUpdate& update) {
  apply_muon(context_, *muon_, update, parameters_, partition_.own(parameters_.values()),
             partition_.own<const float>(parameters_.gradients()), optimizer_.first_moments(),
             partition_.begin());
}

void CpuBackend::end_update() {
  ranks_.meet();  // others may have more to update
  ranks_.all_gather(parameters_.values(), partition_.cuts());
}

}  // namespace winnow::train
