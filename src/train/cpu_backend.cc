#include "train/cpu_backend.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace winnow::train {

CpuBackend::CpuBackend(const TrainingOptions& options, const model::ModelSpec& base_config,
                       const FindTensor& base, Parameters& parameters,
                       parallel::Communicator& ranks)
    : spec_(student_config(options, base_config)),
      parameters_(parameters),
      ranks_(ranks),
      sharding_(parameters, options.zero_stage, ranks.rank(), ranks.size(),
                options.muon.has_value()),
      optimizer_(options.adamw, sharding_.held()),
      muon_(options.muon),
      student_(make_student_tensors(spec_, base, parameters, sharding_, ranks)),
      decoder_(spec_, options.micro_batch * options.length, host_keep(options)),
      hidden_gradient_(options.micro_batch * options.length *
                       static_cast<std::size_t>(spec_.hidden)) {
  decoder_.access = student_.get();
  if (options.retrofit) {
    divergence_ = options.retrofit->divergence;
    teacher_ = bind_weights(base_config, base);
    teacher_decoder_.emplace(base_config, options.micro_batch * options.length, Keep::nothing);
    decoder_.excess_limit = static_cast<float>(options.retrofit->excess_limit);
  }
  if (options.retrofit && options.retrofit->uniform_weights) {
    for (LayerGradients& layer : student_->gradients().layers) {  // they stay 0, and omega one half
      layer.omega = {};
      layer.omega_bias = {};
    }
  }
  context_.compute = options.compute;
  context_.workspace = &workspace_;
}

void CpuBackend::begin_update() {
  student_->begin_update();
  sums_ = {};
}

ops::Matrix<float> CpuBackend::gradient() {
  return {hidden_gradient_.data(), batch_.size(), static_cast<std::size_t>(spec_.hidden)};
}

double CpuBackend::loss_of_head(MainLoss loss) {
  const HeadInput student{&student_->weights(), decoder_.hidden()};
  if (loss == MainLoss::language_model) {
    return language_model_loss(context_, spec_, batch_, student, student_->gradients(), gradient());
  }
  teacher_decoder_->forward(context_, teacher_, batch_, {});
  const HeadInput teacher{&teacher_, teacher_decoder_->hidden()};
  return distillation_loss(context_, spec_, batch_, *divergence_, student, teacher,
                           student_->gradients(), gradient());
}

void CpuBackend::forward(const Batch& batch, const DecisionPass& pass, MainLoss loss) {
  batch_ = batch;
  pass_ = pass;
  decoder_.forward(context_, student_->weights(), batch_, pass_);
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
  decoder_.backward(context_, student_->weights(), batch_, pass_, losses, student_->gradients(),
                    gradient());
}

// This rank computes nothing, but opens and closes layers as a pass does.
void CpuBackend::skip_part() {
  for (int layer = 0; layer < spec_.layer_count(); ++layer) {
    student_->open(layer);
  }
  for (int layer = spec_.layer_count() - 1; layer >= 0; --layer) {
    student_->open(layer);
    student_->close(layer);
  }
}

PassSums CpuBackend::finish() {
  student_->add_up();
  const auto squares_of = [this](Role role) {
    const auto [begin, end] = sharding_.held(parameters_.range(role));
    return sum_of_squares(student_->held_gradients().subspan(begin, end - begin));
  };
  sums_.norm =
      std::sqrt(squares_of(Role::embedding) + squares_of(Role::matrix) + squares_of(Role::vector));
  sums_.decision_norm = std::sqrt(squares_of(Role::decision));
  return sum_over_ranks(ranks_, sums_);
}

void CpuBackend::apply(const AdamW::Update& update) {
  AdamW::Update own = update;
  std::tie(own.begin, own.end) = sharding_.held({update.begin, update.end});
  optimizer_.apply(own, student_->held_values(), student_->held_gradients());
}

void CpuBackend::apply(const MuonUpdate& update) {
  for (const Section& section : sharding_.sections()) {
    const auto own = [&section](std::span<float> held) {
      return held.subspan(section.held, section.partition.size());
    };
    apply_muon(context_, *muon_, update, parameters_, own(student_->held_values()),
               own(student_->held_gradients()), own(optimizer_.first_moments()),
               section.partition.begin());
  }
}

}  // namespace winnow::train
