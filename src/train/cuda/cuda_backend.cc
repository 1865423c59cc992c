#include "train/cuda/cuda_backend.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <tuple>

#include "base/cuda/graph.h"
#include "base/error.h"
#include "model/rope_frequencies.h"
#include "ops/cuda/rope.h"
#include "ops/cuda/segment_average.h"
#include "train/cuda/decoder.h"
#include "train/cuda/head.h"
#include "train/cuda/memory_plan.h"
#include "train/cuda/optimizer.h"

namespace winnow::train {
namespace {

using cuda::DevicePass;
using winnow::cuda::check;
using winnow::cuda::DeviceBuffer;
using winnow::cuda::PinnedBuffer;

// What a captured pass reads of its batch, in one block: arrays of a word per token.
enum Column : std::size_t { kTokens, kTargets, kWeights, kFirstKeys, kPositions, kColumns };

// What a captured pass reads besides.
struct PassValues {
  std::uint64_t noise = 0;
  float channel_factor = 0.0F;
};

// What kernels add up over an update.
struct Sums {
  double loss = 0.0;
  double squares = 0.0;  // of the gradient, decisions' left out
  double decision_squares = 0.0;
  int first_bad = 0;
};

// Inputs of one pass in host memory, until the device has taken them.
struct HostInputs {
  HostInputs(std::size_t tokens, int layers)
      : batch(kColumns * tokens), values(1), losses(static_cast<std::size_t>(layers)) {}
  PinnedBuffer<std::int32_t> batch;
  PinnedBuffer<PassValues> values;
  PinnedBuffer<ops::cuda::DecisionFactors> losses;
};

template <class T>
void copy_async(const DeviceBuffer<T>& to, const PinnedBuffer<T>& from, cudaStream_t stream) {
  check(cudaMemcpyAsync(to.data(), from.data(), to.size() * sizeof(T), cudaMemcpyHostToDevice,
                        stream),
        "copy to the device");
}

template <class T>
void copy_async(const PinnedBuffer<T>& to, const DeviceBuffer<T>& from, cudaStream_t stream) {
  check(cudaMemcpyAsync(to.data(), from.data(), to.size() * sizeof(T), cudaMemcpyDeviceToHost,
                        stream),
        "copy from the device");
}

template <class T>
void clear_async(const DeviceBuffer<T>& buffer, cudaStream_t stream) {
  check(cudaMemsetAsync(buffer.data(), 0, buffer.size() * sizeof(T), stream), "fill");
}

std::size_t decisions_of_model(const ModelConfig& config) {
  return config.dms || config.dmc
             ? static_cast<std::size_t>(config.layers) * decision_count(config)
             : 0;
}

class CudaBackend : public Backend {
 public:
  CudaBackend(const TrainingOptions& options, const ModelConfig& base, const FindTensor& find,
              Parameters& parameters);

  void begin_update() override;
  void forward(const Batch& batch, const DecisionPass& pass, MainLoss loss) override;
  std::vector<std::int64_t> marked() override;
  void backward(std::span<const DecisionLoss> losses) override;
  PassSums finish() override;
  void apply(const AdamW::Update& update) override;
  [[nodiscard]] double peak_flops() const override { return winnow::cuda::nominal_bf16_flops(); }
  void fetch_values() override;
  Moments fetch_moments() override;
  void store() override;

 private:
  // A pass on an empty batch: kernels are loaded, the products' algorithms chosen.
  void warm_up();
  // Passes of one kind are recorded once.
  using Kind = std::tuple<bool, DecisionPass::Mode, MainLoss>;  // first: backward
  void run(const Kind& kind, const std::function<void()>& work);

  HostInputs& next_inputs();
  void take_batch(HostInputs& inputs, const Batch& batch, const DecisionPass& pass);
  [[nodiscard]] DevicePass pass_of(const ModelConfig& config) const;
  void run_forward(MainLoss loss);
  void run_backward();
  template <class T = std::int32_t>
  [[nodiscard]] const T* column(Column which) const {
    return reinterpret_cast<const T*>(batch_.data() + which * tokens_);
  }
  [[nodiscard]] cuda::StreamGradient gradient() const {
    return {gradient_.data(), rounded_gradient_.data()};
  }

  TrainingOptions options_;
  ModelConfig base_config_;
  ModelConfig config_;
  std::size_t tokens_;
  Keep keep_;
  Parameters& parameters_;
  winnow::cuda::Stream stream_;

  std::optional<cuda::FrozenWeights> frozen_;  // the teacher's, and what is not trained
  cuda::TrainedWeights trained_;
  cuda::DeviceWeights student_;
  cuda::DeviceWeights teacher_;
  cuda::DeviceGradients gradients_;

  cuda::LayerScratch scratch_;
  std::optional<cuda::DeviceDecoder> teacher_decoder_;
  cuda::DeviceDecoder decoder_;
  cuda::DeviceHead head_;
  mutable ops::cuda::Linear linear_;

  DeviceBuffer<float> frequencies_;     // [head_dim / 2]
  DeviceBuffer<float2> angles_;         // [T, head_dim / 2]
  DeviceBuffer<std::int32_t> batch_;    // [kColumns, T]
  DeviceBuffer<PassValues> values_;     // one
  DeviceBuffer<ops::cuda::DecisionFactors> losses_;  // [layers]
  DeviceBuffer<float> gradient_;        // [T, hidden]: of the residual stream
  DeviceBuffer<bf16> rounded_gradient_;
  DeviceBuffer<Sums> sums_;                    // one
  DeviceBuffer<unsigned long long> marked_;    // [layers, decisions]
  PinnedBuffer<Sums> initial_sums_;
  PinnedBuffer<Sums> host_sums_;
  PinnedBuffer<unsigned long long> host_marked_;

  std::vector<HostInputs> inputs_;  // of the update's passes
  std::size_t inputs_used_ = 0;
  DecisionPass pass_;  // the latest forward()'s
  MainLoss loss_ = MainLoss::distillation;
  bool decided_ = false;  // in this update
  std::vector<std::int64_t> marked_before_;
  std::map<Kind, winnow::cuda::Graph> graphs_;
  Buffer<float> first_moments_;
  Buffer<float> second_moments_;
};

void require_supported(const TrainingOptions& options, const ModelConfig& config) {
  require(config.hidden % 8 == 0 && config.intermediate % 8 == 0,
          "the model has {} hidden and {} MLP channels: training on a CUDA device needs multiples "
          "of 8",
          config.hidden, config.intermediate);
  require(!config.dmc || options.retrofit->merge_span <= ops::cuda::kMostMergeSpan,
          "--merge-span {}: expected at most {} on a CUDA device", options.retrofit->merge_span,
          ops::cuda::kMostMergeSpan);
}

CudaBackend::CudaBackend(const TrainingOptions& options, const ModelConfig& base,
                         const FindTensor& find, Parameters& parameters)
    : options_(options),
      base_config_(base),
      config_(student_config(options, base)),
      tokens_(options.micro_batch * options.length),
      keep_(cuda::choose_keep(options, base)),
      parameters_(parameters),
      frozen_(options.retrofit ? std::make_optional<cuda::FrozenWeights>(base, find)
                               : std::nullopt),
      trained_(config_, parameters, stream_.get()),
      student_(trained_.view(frozen_ ? &*frozen_ : nullptr)),
      gradients_(trained_.gradients(!options.retrofit || !options.retrofit->uniform_weights)),
      scratch_(config_, tokens_),
      decoder_(config_, tokens_, keep_),
      head_(config_, tokens_, options.retrofit.has_value()),
      frequencies_(std::span<const float>(
          model::rope_frequencies(config_.rope, config_.head_dim))),
      angles_(tokens_ * static_cast<std::size_t>(config_.head_dim / 2)),
      batch_(kColumns * tokens_),
      values_(1),
      losses_(static_cast<std::size_t>(config_.layers)),
      gradient_(tokens_ * static_cast<std::size_t>(config_.hidden)),
      rounded_gradient_(gradient_.size()),
      sums_(1),
      marked_(decisions_of_model(config_)),
      initial_sums_(1),
      host_sums_(1),
      host_marked_(std::max<std::size_t>(1, marked_.size())) {
  if (frozen_) {
    teacher_ = frozen_->view(base);
    teacher_decoder_.emplace(base, tokens_, Keep::nothing);
  }
  *initial_sums_.data() = {.first_bad = config_.layers + 1};
  warm_up();
  stream_.synchronize();
}

void CudaBackend::warm_up() {
  clear_async(batch_, stream_.get());
  clear_async(values_, stream_.get());
  clear_async(losses_, stream_.get());
  clear_async(sums_, stream_.get());
  if (options_.retrofit) {
    pass_.mode = DecisionPass::Mode::sampled;
    pass_.tau = options_.retrofit->tau;
    pass_.merge_span = options_.retrofit->merge_span;
  }
  linear_.search(true);
  if (options_.retrofit) {  // the student is compared with its teacher at least once
    run_forward(MainLoss::distillation);
  }
  if (!options_.retrofit || options_.retrofit->main_loss == MainLoss::language_model) {
    run_forward(MainLoss::language_model);
  }
  run_backward();
  linear_.search(false);
}

HostInputs& CudaBackend::next_inputs() {
  if (inputs_used_ == inputs_.size()) {
    inputs_.emplace_back(tokens_, config_.layers);
  }
  return inputs_[inputs_used_++];
}

void CudaBackend::begin_update() {
  inputs_used_ = 0;
  decided_ = false;
  marked_before_.assign(marked_.size(), 0);
  clear_async(trained_.gradient, stream_.get());
  clear_async(marked_, stream_.get());
  copy_async(sums_, initial_sums_, stream_.get());
}

void CudaBackend::take_batch(HostInputs& inputs, const Batch& batch, const DecisionPass& pass) {
  const auto fill = [&](Column which, const auto& values) {
    std::memcpy(inputs.batch.data() + which * tokens_, values.data(),
                tokens_ * sizeof(std::int32_t));
  };
  fill(kTokens, batch.tokens);
  fill(kTargets, batch.targets);
  fill(kWeights, batch.weights);
  fill(kFirstKeys, batch.first_key);
  for (std::size_t t = 0; t < tokens_; ++t) {
    inputs.batch.data()[kPositions * tokens_ + t] =
        static_cast<std::int32_t>(t) - batch.first_key[t];
  }
  const bool off = pass.mode == DecisionPass::Mode::off;
  *inputs.values.data() = {pass.noise, off ? pass.fade : 0.0F};
  copy_async(batch_, inputs.batch, stream_.get());
  copy_async(values_, inputs.values, stream_.get());
}

DevicePass CudaBackend::pass_of(const ModelConfig& config) const {
  DevicePass pass;
  pass.config = &config;
  pass.tokens = static_cast<int>(tokens_);
  pass.first_key = column(kFirstKeys);
  pass.angles = angles_.data();
  pass.mode = pass_.mode;
  pass.tau = pass_.tau;
  pass.merge_span = pass_.merge_span;
  pass.channel_factor = &values_.data()->channel_factor;
  pass.noise = &values_.data()->noise;
  pass.losses = losses_.data();
  pass.marked = marked_.data();
  pass.first_bad = &sums_.data()->first_bad;
  pass.linear = &linear_;
  pass.scratch = &scratch_;
  pass.stream = stream_.get();
  return pass;
}

void CudaBackend::run(const Kind& kind, const std::function<void()>& work) {
  auto found = graphs_.find(kind);
  if (found == graphs_.end()) {
    found = graphs_.try_emplace(kind, stream_, work).first;
  }
  found->second.launch(stream_);
}

void CudaBackend::forward(const Batch& batch, const DecisionPass& pass, MainLoss loss) {
  assert(batch.size() == tokens_);
  pass_ = pass;
  loss_ = loss;
  decided_ = decided_ || (marked_.size() > 0 && pass.mode != DecisionPass::Mode::off);
  take_batch(next_inputs(), batch, pass);
  run({false, pass.mode, loss}, [&] { run_forward(loss); });
}

void CudaBackend::run_forward(MainLoss loss) {
  ops::cuda::rope_angles(angles_.data(), frequencies_.data(), config_.head_dim / 2,
                         column(kPositions), static_cast<int>(tokens_), stream_.get());
  const cuda::DeviceTargets targets{column(kTargets), column<float>(kWeights)};
  const DevicePass pass = pass_of(config_);
  double* const sum = &sums_.data()->loss;
  if (loss == MainLoss::language_model) {
    decoder_.forward(pass, student_, column(kTokens));
    head_.language_model_loss(pass, student_, decoder_.hidden(), targets, gradients_, gradient(),
                              sum);
    return;
  }
  DevicePass teacher = pass_of(base_config_);
  teacher.first_bad = nullptr;
  teacher_decoder_->forward(teacher, teacher_, column(kTokens));
  head_.take_teacher(teacher, teacher_, teacher_decoder_->hidden());
  decoder_.forward(pass, student_, column(kTokens));
  head_.distillation_loss(pass, student_, decoder_.hidden(), targets, teacher_,
                          options_.retrofit->divergence, gradients_, gradient(), sum);
}

std::vector<std::int64_t> CudaBackend::marked() {
  copy_async(host_marked_, marked_, stream_.get());
  stream_.synchronize();
  std::vector<std::int64_t> counts(marked_.size());
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const auto all = static_cast<std::int64_t>(host_marked_.data()[i]);
    counts[i] = all - marked_before_[i];
    marked_before_[i] = all;
  }
  return counts;
}

void CudaBackend::backward(std::span<const DecisionLoss> losses) {
  HostInputs& inputs = inputs_[inputs_used_ - 1];
  if (!losses.empty()) {
    std::ranges::transform(losses, inputs.losses.data(), [](const DecisionLoss& loss) {
      return ops::cuda::DecisionFactors{loss.count, loss.excess, loss.excess_limit};
    });
    copy_async(losses_, inputs.losses, stream_.get());
  }
  run({true, pass_.mode, loss_}, [this] { run_backward(); });
}

void CudaBackend::run_backward() {
  decoder_.backward(pass_of(config_), student_, column(kTokens), gradients_, gradient());
}

PassSums CudaBackend::finish() {
  const auto add_squares = [this](Role role, double* sum) {
    const auto [begin, end] = parameters_.range(role);
    cuda::add_squares(sum, trained_.gradient.data() + begin, end - begin, stream_.get());
  };
  Sums* const sums = sums_.data();
  add_squares(Role::matrix, &sums->squares);
  add_squares(Role::vector, &sums->squares);
  add_squares(Role::decision, &sums->decision_squares);
  copy_async(host_sums_, sums_, stream_.get());
  if (marked_.size() > 0) {
    copy_async(host_marked_, marked_, stream_.get());
  }
  stream_.synchronize();
  const Sums& host = *host_sums_.data();
  PassSums result{.loss = host.loss,
                  .marked = {},
                  .norm = std::sqrt(host.squares),
                  .decision_norm = std::sqrt(host.decision_squares),
                  .not_finite = host.first_bad};
  if (decided_) {
    result.marked.assign(host_marked_.data(), host_marked_.data() + marked_.size());
  }
  return result;
}

void CudaBackend::apply(const AdamW::Update& update) {
  const auto steps = static_cast<double>(update.step);
  const AdamWOptions& adamw = options_.adamw;
  const cuda::AdamWStep step{
      .beta1 = static_cast<float>(adamw.beta1),
      .beta2 = static_cast<float>(adamw.beta2),
      .epsilon = static_cast<float>(adamw.epsilon),
      .rate = static_cast<float>(update.rate / (1.0 - std::pow(adamw.beta1, steps))),
      .correction = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(adamw.beta2, steps))),
      .kept = static_cast<float>(1.0 - update.rate * update.decay),
      .gradient_factor = static_cast<float>(update.gradient_factor)};
  bf16* const rounded = trained_.rounded(update.begin);
  cuda::apply_adamw(step,
                    {.values = trained_.values.data() + update.begin,
                     .rounded = rounded,
                     .gradients = trained_.gradient.data() + update.begin,
                     .first = trained_.first_moments.data() + update.begin,
                     .second = trained_.second_moments.data() + update.begin,
                     .count = update.end - update.begin},
                    stream_.get());
  if (rounded == nullptr) {
    trained_.round(update.begin, update.end, stream_.get());
  }
}

void CudaBackend::fetch_values() {
  stream_.synchronize();
  trained_.values.read(parameters_.values());
}

Moments CudaBackend::fetch_moments() {
  first_moments_.ensure(parameters_.size());
  second_moments_.ensure(parameters_.size());
  stream_.synchronize();
  trained_.first_moments.read(first_moments_.span());
  trained_.second_moments.read(second_moments_.span());
  return {first_moments_.span(), second_moments_.span()};
}

void CudaBackend::store() {
  const auto write = [](const DeviceBuffer<float>& to, std::span<const float> from) {
    check(cudaMemcpy(to.data(), from.data(), from.size_bytes(), cudaMemcpyHostToDevice),
          "copy to the device");
  };
  stream_.synchronize();
  write(trained_.values, parameters_.values());
  write(trained_.first_moments, first_moments_.span());
  write(trained_.second_moments, second_moments_.span());
  winnow::cuda::wait_for_default_stream();
  trained_.round(0, parameters_.size(), stream_.get());
}

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(const TrainingOptions& options,
                                           const ModelConfig& base_config, const FindTensor& base,
                                           Parameters& parameters) {
  require_supported(options, student_config(options, base_config));
  winnow::cuda::use_device(*options.cuda_device);
  return std::make_unique<CudaBackend>(options, base_config, base, parameters);
}

}  // namespace winnow::train
