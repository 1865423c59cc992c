#include "train/cuda/cuda_backend.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>

#include "base/cuda/graph.h"
#include "base/error.h"
#include "model/rope_tables.h"
#include "ops/cuda/rope.h"
#include "parallel/rank_device.h"
#include "train/cuda/copies.h"
#include "train/cuda/decoder.h"
#include "train/cuda/head.h"
#include "train/cuda/optimizer.h"
#include "train/cuda/pass_inputs.h"
#include "train/cuda/sharded_weights.h"
#include "train/cuda/supported.h"
#include "train/cuda_memory/memory_plan.h"

namespace winnow::train {
namespace {

using cuda::DevicePass;
using winnow::cuda::DeviceBuffer;
using winnow::cuda::PinnedBuffer;

// Sums that kernels accumulate over an update.
struct Sums {
  double loss = 0.0;
  double squares = 0.0;  // of the gradient, except decisions
  double decision_squares = 0.0;
  int first_bad = 0;
};

class CudaBackend : public Backend {
 public:
  CudaBackend(const TrainingOptions& options, const model::ModelSpec& base, const FindTensor& find,
              Parameters& parameters, parallel::Communicator& ranks);

  void begin_update() override;
  void forward(const Batch& batch, const DecisionPass& pass, MainLoss loss) override;
  std::vector<std::int64_t> marked() override;
  void backward(std::span<const DecisionLoss> losses) override;
  void skip_part() override;
  PassSums finish() override;
  void apply(const AdamW::Update& update) override;
  void apply(const MuonUpdate& update) override;
  void end_update() override;
  [[nodiscard]] double peak_flops() const override { return winnow::cuda::nominal_bf16_flops(); }
  [[nodiscard]] std::size_t fp8_copies_read() const override { return products_.copies_read(); }
  void fetch_values() override;
  Moments fetch_moments() override;
  void store() override;

 private:
  void load_weights(const FindTensor& find);
  // Runs a pass on an empty batch: it loads kernels and chooses the products' algorithms.
  void warm_up();
  // Each kind of pass is captured in a CUDA graph once. When weights are shared out, hosts launch
  // each pass: they wait for each other in it.
  using Kind = std::tuple<bool, DecisionPass::Mode, MainLoss>;  // first: backward
  void run(const Kind& kind, const std::function<void()>& work);

  [[nodiscard]] DevicePass pass_of(const model::ModelSpec& spec) const;
  void run_forward(MainLoss loss);
  void run_head(const DevicePass& pass, MainLoss loss);
  /// Calls `work` between opening and closing what the head needs.
  void at_head(MainLoss loss, const std::function<void()>& work);
  void run_backward();
  [[nodiscard]] cuda::StreamGradient gradient() const {
    return {gradient_.data(), rounded_gradient_.data()};
  }

  TrainingOptions options_;
  model::ModelSpec base_config_;
  model::ModelSpec spec_;
  std::size_t tokens_;
  Keep keep_;
  Parameters& parameters_;
  parallel::Communicator& ranks_;
  winnow::cuda::Stream stream_;

  cuda::Peers peers_;
  cuda::RankParts parts_;                      // of the parameters
  std::optional<cuda::LayerSlots> slots_;      // if weights are shared out
  std::optional<cuda::FrozenWeights> frozen_;  // the teacher's weights, and those not trained
  std::unique_ptr<cuda::StudentWeights> trained_;
  cuda::DeviceWeights student_;
  cuda::DeviceWeights teacher_{};
  cuda::DeviceGradients gradients_;

  cuda::LayerScratch scratch_;
  std::optional<cuda::DeviceDecoder> teacher_decoder_;
  cuda::DeviceDecoder decoder_;
  cuda::DeviceHead head_;
  mutable cuda::Products products_;
  std::optional<cuda::Fp8Copies> fp8_;  // if products are in fp8
  std::optional<cuda::Muon> muon_;

  model::RopeTables ropes_;
  DeviceBuffer<float> frequencies_;  // [tables, rotary channels / 2]
  DeviceBuffer<float2> angles_;      // [tables, T, rotary channels / 2]
  cuda::PassInputs inputs_;
  DeviceBuffer<float> gradient_;  // [T, hidden]: of the residual stream
  DeviceBuffer<bf16> rounded_gradient_;
  DeviceBuffer<Sums> sums_;                  // one
  DeviceBuffer<unsigned long long> marked_;  // [layers, decisions]
  PinnedBuffer<Sums> initial_sums_;
  PinnedBuffer<Sums> host_sums_;
  PinnedBuffer<unsigned long long> host_marked_;

  DecisionPass pass_;  // of the latest forward()
  MainLoss loss_ = MainLoss::distillation;
  bool decided_ = false;  // in this update
  std::vector<std::int64_t> marked_before_;
  std::map<Kind, winnow::cuda::Graph> graphs_;
};

CudaBackend::CudaBackend(const TrainingOptions& options, const model::ModelSpec& base,
                         const FindTensor& find, Parameters& parameters,
                         parallel::Communicator& ranks)
    : options_(options),
      base_config_(base),
      spec_(student_config(options, base)),
      tokens_(options.micro_batch * options.length),
      keep_(cuda::choose_keep(options, base, winnow::cuda::free_memory())),
      parameters_(parameters),
      ranks_(ranks),
      peers_(ranks, *options.cuda_device),
      parts_(parameters, spec_.layer_count(), options.zero_stage, ranks.rank(), ranks.size(),
             options.muon.has_value()),
      scratch_(spec_, tokens_),
      decoder_(spec_, tokens_, keep_),
      head_(spec_, {spec_, tokens_, options.retrofit.has_value(),
                    cuda::HeadSizes::chunk_for(options.zero_stage)}),
      ropes_(spec_),
      frequencies_(std::span<const float>(ropes_.frequencies())),
      angles_(tokens_ * frequencies_.size()),
      inputs_(tokens_, std::max<std::size_t>(1, decisions_of_model(spec_)), spec_.chunk()),
      gradient_(tokens_ * static_cast<std::size_t>(spec_.hidden)),
      rounded_gradient_(gradient_.size()),
      sums_(1),
      marked_(decisions_of_model(spec_)),
      initial_sums_(1),
      host_sums_(1),
      host_marked_(std::max<std::size_t>(1, marked_.size())) {
  load_weights(find);
  if (options.muon) {
    muon_.emplace(*options.muon, parameters, parts_.own().sections().front().partition);
  }
  *initial_sums_.data() = {.first_bad = spec_.layer_count() + 1};
  end_update();
  warm_up();
  stream_.synchronize();
}

void CudaBackend::load_weights(const FindTensor& find) {
  if (options_.zero_stage == ZeroStage::everything) {
    slots_.emplace(cuda::largest_layer(base_config_), stream_);
  }
  cuda::LayerSlots* const slots = slots_ ? &*slots_ : nullptr;
  if (options_.retrofit) {
    frozen_.emplace(base_config_, find, peers_, slots, stream_);
    teacher_ = frozen_->view(base_config_);
    teacher_decoder_.emplace(base_config_, tokens_, Keep::nothing);
    teacher_decoder_->access = &*frozen_;
  }
  if (slots != nullptr) {
    auto sharded =
        std::make_unique<cuda::ShardedWeights>(spec_, parameters_, parts_, peers_, *slots, stream_);
    decoder_.access = trained_part(spec_) == Trained::everything
                          ? static_cast<cuda::PlaceAccess*>(sharded.get())
                          : &*frozen_;
    trained_ = std::move(sharded);
  } else {
    trained_ = std::make_unique<cuda::WholeWeights>(spec_, parameters_, parts_, peers_, stream_);
  }
  student_ = trained_->weights(frozen_ ? &*frozen_ : nullptr);
  gradients_ = trained_->gradients(!options_.retrofit || !options_.retrofit->uniform_weights);
  if (options_.fp8_products) {
    products_.use(fp8_.emplace(options_, base_config_, teacher_, student_, stream_.get()));
  }
}

void CudaBackend::warm_up() {
  inputs_.clear(stream_.get());
  cuda::clear_async(sums_, stream_.get());
  if (options_.retrofit) {
    pass_.mode = DecisionPass::Mode::sampled;
    pass_.tau = options_.retrofit->tau;
    pass_.merge_span = options_.retrofit->merge_span;
  }
  pass_.far_dropout = options_.far_dropout ? &*options_.far_dropout : nullptr;
  products_.linear().search(true);
  if (options_.retrofit) {  // the student is compared with its teacher at least once
    run_forward(MainLoss::distillation);
  }
  if (!options_.retrofit || options_.retrofit->main_loss == MainLoss::language_model) {
    run_forward(MainLoss::language_model);
  }
  run_backward();
  if (muon_) {
    muon_->warm_up(products_.linear(), stream_.get());
  }
  products_.linear().search(false);
}

void CudaBackend::begin_update() {
  inputs_.begin_update();
  decided_ = false;
  marked_before_.assign(marked_.size(), 0);
  trained_->begin_update();
  cuda::clear_async(marked_, stream_.get());
  cuda::copy_async(sums_, initial_sums_, stream_.get());
}

DevicePass CudaBackend::pass_of(const model::ModelSpec& spec) const {
  return {.spec = &spec,
          .tokens = static_cast<int>(tokens_),
          .first_key = inputs_.first_key(),
          .chunk_key = inputs_.chunk_key(),
          .positions = inputs_.positions(),
          .ropes = &ropes_,
          .angles = angles_.data(),
          .mode = pass_.mode,
          .tau = pass_.tau,
          .merge_span = pass_.merge_span,
          .far_dropout = pass_.far_dropout,
          .channel_factor = inputs_.channel_factor(),
          .noise = inputs_.noise(),
          .losses = inputs_.losses(),
          .marked = marked_.data(),
          .first_bad = &sums_.data()->first_bad,
          .linear = &products_,
          .scratch = &scratch_,
          .stream = stream_.get()};
}

void CudaBackend::run(const Kind& kind, const std::function<void()>& work) {
  if (slots_) {
    return work();
  }
  auto found = graphs_.find(kind);
  if (found == graphs_.end()) {
    found = graphs_.try_emplace(kind, stream_, work).first;
  }
  found->second.launch(stream_);
}

void CudaBackend::forward(const Batch& batch, const DecisionPass& pass, MainLoss loss) {
  pass_ = pass;
  loss_ = loss;
  decided_ = decided_ || (marked_.size() > 0 && pass.mode != DecisionPass::Mode::off);
  inputs_.take(batch, pass, stream_.get());
  run({false, pass.mode, loss}, [&] { run_forward(loss); });
}

void CudaBackend::run_forward(MainLoss loss) {
  const auto half = static_cast<std::size_t>(ropes_.channels() / 2);
  for (std::size_t table = 0; table < ropes_.ropes().size(); ++table) {
    ops::cuda::rope_angles(angles_.data() + table * tokens_ * half,
                           frequencies_.data() + table * half, static_cast<int>(half),
                           inputs_.positions(), static_cast<int>(tokens_), stream_.get(),
                           ropes_.ropes()[table].attention_factor);
  }
  if (loss == MainLoss::distillation) {
    DevicePass teacher = pass_of(base_config_);
    teacher.first_bad = nullptr;
    teacher_decoder_->forward(teacher, teacher_, inputs_.tokens());
    head_.take_teacher(teacher, teacher_, teacher_decoder_->hidden());
  }
  const DevicePass pass = pass_of(spec_);
  decoder_.forward(pass, student_, inputs_.tokens());
  run_head(pass, loss);
}

void CudaBackend::run_head(const DevicePass& pass, MainLoss loss) {
  const cuda::DeviceTargets targets{inputs_.targets(), inputs_.weights()};
  double* const sum = &sums_.data()->loss;
  at_head(loss, [&] {
    if (loss == MainLoss::language_model) {
      head_.language_model_loss(pass, student_, decoder_.hidden(), targets, gradients_, gradient(),
                                sum);
    } else {
      head_.distillation_loss(pass, student_, decoder_.hidden(), targets, teacher_,
                              options_.retrofit->divergence, gradients_, gradient(), sum);
    }
  });
}

void CudaBackend::at_head(MainLoss loss, const std::function<void()>& work) {
  const int head = spec_.layer_count();  // its place
  decoder_.access->open(head, cuda::kEmbeddingPlace);
  decoder_.access->open_gradients(head);
  if (loss == MainLoss::distillation) {
    frozen_->open(head, cuda::kEmbeddingPlace);
  }
  work();
  decoder_.access->close_gradients(head);
}

std::vector<std::int64_t> CudaBackend::marked() {
  cuda::copy_async(host_marked_, marked_, stream_.get());
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
  if (!losses.empty()) {
    inputs_.take(losses, stream_.get());
  }
  run({true, pass_.mode, loss_}, [this] { run_backward(); });
}

void CudaBackend::run_backward() {
  decoder_.backward(pass_of(spec_), student_, inputs_.tokens(), gradients_, gradient());
}

// Ranks gather weights and add up gradients in each part: what the others' forward() and backward()
// open. Every rank has computed a part of the update before.
void CudaBackend::skip_part() {
  if (loss_ == MainLoss::distillation) {
    teacher_decoder_->skip_forward();
  }
  decoder_.skip_forward();
  at_head(loss_, [] {});
  decoder_.skip_backward(gradients_.embedding != nullptr);
}

PassSums CudaBackend::finish() {
  trained_->add_up();
  Sums* const sums = sums_.data();
  for (const Role role : {Role::embedding, Role::matrix, Role::vector, Role::decision}) {
    const auto [begin, end] = parts_.own().held(parameters_.range(role));
    double* const sum = role == Role::decision ? &sums->decision_squares : &sums->squares;
    cuda::add_squares(sum, trained_->held_gradients() + begin, end - begin, stream_.get());
  }
  cuda::copy_async(host_sums_, sums_, stream_.get());
  if (marked_.size() > 0) {
    cuda::copy_async(host_marked_, marked_, stream_.get());
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
  return sum_over_ranks(ranks_, result);
}

void CudaBackend::apply(const AdamW::Update& update) {
  trained_->apply(options_.adamw, update);
}

void CudaBackend::apply(const MuonUpdate& update) {
  muon_->apply(update, trained_->muon_arrays(), products_.linear(), stream_.get());
}

void CudaBackend::end_update() {
  trained_->end_update();
  if (fp8_) {
    fp8_->refresh(stream_.get());
  }
}

void CudaBackend::fetch_values() {
  stream_.synchronize();
  if (!parameters_.is_whole()) {
    return trained_->held().fetch_values(parameters_.values());
  }
  const Partition& partition = parts_.own().sections().front().partition;
  trained_->held().fetch_values(partition.own(parameters_.values()));
  ranks_.meet();
  ranks_.all_gather(parameters_.values(), partition.cuts());
}

Moments CudaBackend::fetch_moments() {
  stream_.synchronize();
  return trained_->fetch_moments();
}

void CudaBackend::store() {
  stream_.synchronize();
  trained_->store(parameters_);
  end_update();
}

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(const TrainingOptions& options,
                                           const model::ModelSpec& base_config,
                                           const FindTensor& base, Parameters& parameters,
                                           parallel::Communicator& ranks) {
  TrainingOptions own = options;
  own.cuda_device = parallel::device_of_rank(*options.cuda_device, ranks.rank(), ranks.size());
  winnow::cuda::use_device(*own.cuda_device);
  cuda::require_supported(own, student_config(own, base_config));
  return std::make_unique<CudaBackend>(own, base_config, base, parameters, ranks);
}

}  // namespace winnow::train
