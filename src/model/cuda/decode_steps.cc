#include "model/cuda/decode_steps.h"

#include <algorithm>
#include <vector>

#include "model/cuda/step_kernels.h"

namespace winnow::model::cuda {
namespace {

constexpr int kStepsOfPlan = 64;

std::size_t elements_of(int rows, int cols) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols);
}

bool wants_states(const StreamStates& states) {
  return states.out.rows > 0;
}

LinearCall call_of(int most_padded, int most) {
  return {.is_step = true, .may_pad = most_padded > 0, .rows = most};
}

}  // namespace

DecodeSteps::DecodeSteps(const DeviceModel& model, const MatrixWeights& matrices,
                         kvcache::cuda::DeviceCache& cache, OutputHead& head, int most_padded)
    : model_(model),
      cache_(cache),
      head_(head),
      most_(most_step_sequences(most_padded)),
      paths_(model, matrices, call_of(most_padded, most_)),
      kernel_(make_step_kernel(model, cache, head)),
      attention_(cache, most_step_sequences(0), model.ranks()),
      handed_(model),
      inputs_(elements_of(2, most_)),
      results_(elements_of(1, most_)),
      slots_(elements_of(1, most_)),
      angles_(elements_of(most_ * model.rope_tables(), model.rotary_channels() / 2)),
      qkv_(elements_of(most_, model.qkv_width())),
      queries_(elements_of(most_, model.query_width())),
      attended_(elements_of(most_, model.mixer_width())) {
  if (most_padded > 0) {
    padded_attention_.emplace(cache, most_, model.ranks());
  }
}

void DecodeSteps::run(const DecodeBatch& batch, ops::Matrix<float> logits,
                      std::span<std::int32_t> next, const winnow::cuda::Stream& stream) {
  renew_tables();
  reserve_handed(batch.streams);
  // Each rank has a part of the logits, so no kernel of one rank could choose a token.
  const bool with_logits = logits.rows > 0 || model_.ranks() != nullptr;
  const Shape shape = shape_of(batch, with_logits);
  note_plan(shape, batch.slots);
  last_path_ = shape.path;
  const winnow::cuda::Graph& graph = graph_of(shape, stream);
  fill_inputs(batch.slots, batch.tokens, shape.size);
  fill_adapters(batch.adapters, shape, stream.get());
  if (shape.with_logits) {
    head_.choose_by(batch.rows, shape.size);
  }
  results_.expect(elements_of(1, shape.size));
  graph.launch(stream);
  if (shape.restricted) {
    choose(batch.rows, shape.size, stream);
  }
  for (const std::int32_t slot : batch.slots) {
    cache_.advance(slot, 1);
  }
  if (logits.data != nullptr) {
    winnow::cuda::check(cudaMemcpyAsync(logits.data, head_.logits(),
                                        batch.slots.size() * logits.cols * sizeof(float),
                                        cudaMemcpyDeviceToHost, stream.get()),
                        "read logits");
  }
  if (shape.with_states) {
    read_handed(batch.streams, stream.get());
  }
  if (logits.data != nullptr || shape.with_reads || shape.with_states) {
    stream.synchronize();
  }
  std::ranges::copy(results_.wait(stream).first(next.size()), next.begin());
  if (shape.with_reads) {
    attention_of(shape.padded).tell_reads(batch.slots, batch.visible);
  }
}

// Graphs hold the memory's address.
void DecodeSteps::reserve_handed(std::span<const StreamStates> streams) {
  const auto wants = std::ranges::find_if(streams, wants_states);
  if (wants != streams.end() && !handed_.wants(wants->after)) {
    graphs_.clear();
    handed_.want(wants->after, most_);
  }
}

void DecodeSteps::read_handed(std::span<const StreamStates> streams, cudaStream_t stream) const {
  int row = 0;
  for (const StreamStates& wanted : streams) {
    handed_.read(row++, wanted, stream);
  }
}

// Graphs hold pointers to tables, which are reallocated when they grow.
void DecodeSteps::renew_tables() {
  if (generation_ != cache_.generation()) {
    graphs_.clear();
    choices_.clear();
    attention_.reserve();
    if (padded_attention_) {
      padded_attention_->reserve();
    }
    generation_ = cache_.generation();
  }
  // Last, because larger tables may need more memory of the ranks.
  if (const auto* ranks = model_.ranks();
      ranks != nullptr && ranks_generation_ != ranks->generation()) {
    graphs_.clear();
    choices_.clear();  // they read the ranks' logits
    ranks_generation_ = ranks->generation();
  }
}

DecodeSteps::Shape DecodeSteps::shape_of(const DecodeBatch& batch, bool with_logits) {
  const bool restricted = any_restricted(batch.rows);
  const bool with_reads =
      std::ranges::any_of(batch.visible, [](const auto& seen) { return seen.data != nullptr; });
  const bool with_states = std::ranges::any_of(batch.streams, wants_states);
  const int size = static_cast<int>(batch.slots.size());
  const bool adapts = !batch.adapters.empty();
  const LinearPath& path = paths_.of(size, adapts);
  if (path.pads()) {
    // Paths that pad always compute logits.
    return {.size = path.padded(size),
            .padded = true,
            .adapts = adapts,
            .with_logits = true,
            .restricted = restricted,
            .with_reads = with_reads,
            .with_states = with_states,
            .kernel = std::nullopt,
            .planned = true,
            .path = path.name()};
  }
  // A step in one kernel uses the plan only for the lengths of rows.
  const bool can_hand_out = !with_states || (model_.ranks() == nullptr && !handed_.repeats());
  const auto kernel =
      kernel_ && can_hand_out ? kernel_->rows_of(attention_.row_pages(), size) : std::nullopt;
  return {.size = size,
          .padded = false,
          .adapts = false,
          .with_logits = with_logits || !batch.rows.empty(),
          .restricted = restricted,
          .with_reads = with_reads,
          .with_states = with_states,
          .kernel = kernel,
          .planned = !kernel || !is_planned(batch.slots),
          .path = kernel ? kernel_->name() : path.name()};
}

// A step in one kernel uses only the row lengths of a plan. These change slowly while the same
// sequences grow; a new sequence in a slot usually has another length. If it has the same length,
// it is mistaken for the old one, and the kernel is chosen by the old row lengths for a while.
bool DecodeSteps::is_planned(std::span<const std::int32_t> slots) const {
  const std::int64_t grown = lengths_of(slots) - planned_lengths_;
  const auto steps = static_cast<std::int64_t>(slots.size());
  return std::ranges::equal(slots, planned_slots_) && grown > 0 && grown < kStepsOfPlan * steps;
}

// The sum over all slots.
std::int64_t DecodeSteps::lengths_of(std::span<const std::int32_t> slots) const {
  std::int64_t lengths = 0;
  for (const std::int32_t slot : slots) {
    lengths += cache_.length(slot);
  }
  return lengths;
}

void DecodeSteps::note_plan(const Shape& shape, std::span<const std::int32_t> slots) {
  if (shape.planned && !shape.padded) {
    const auto planned = slots.first(shape.kernel ? slots.size() : 0);
    planned_slots_.assign(planned.begin(), planned.end());
    planned_lengths_ = lengths_of(planned);
  }
}

// Rows of padding have no adapter.
void DecodeSteps::fill_adapters(std::span<const DeviceLora* const> adapters, const Shape& shape,
                                cudaStream_t stream) {
  if (shape.adapts) {
    adapted_.reserve(elements_of(1, most_), ops::cuda::kMostLowRank);  // graphs hold the addresses
    std::vector<const DeviceLora*> rows(adapters.begin(), adapters.end());
    rows.resize(elements_of(1, shape.size));
    adapted_.put(rows, stream);
  }
}

void DecodeSteps::fill_inputs(std::span<const std::int32_t> slots,
                              std::span<const std::int32_t> tokens, int size) {
  std::fill_n(inputs_.data(), size, kNoSlot);
  std::fill_n(inputs_.data() + size, size, 0);
  std::ranges::copy(slots, inputs_.data());
  std::ranges::copy(tokens, inputs_.data() + size);
}

const winnow::cuda::Graph& DecodeSteps::graph_of(const Shape& shape,
                                                 const winnow::cuda::Stream& stream) {
  auto found = graphs_.find(shape);
  if (found == graphs_.end()) {
    // Depends on the size only: the warm-up is a pass of its own, so all ranks must run it or none.
    if (shape.padded && warmed_.emplace(shape.size, shape.adapts).second) {
      // A step of padding only, once per size: linear layers choose algorithms, and libraries load
      // their kernels. Neither may happen during a capture.
      fill_inputs({}, {}, shape.size);
      fill_adapters({}, shape, stream.get());
      head_.choose_by({}, shape.size);
      put_step(shape, stream.get());
      stream.synchronize();
    }
    found = graphs_.try_emplace(shape, stream, [&] { put_step(shape, stream.get()); }).first;
  }
  return found->second;
}

// Chooses tokens after a graph that ends with the logits.
void DecodeSteps::choose(std::span<const RowChoice> rows, int size,
                         const winnow::cuda::Stream& stream) {
  auto found = choices_.find(size);
  if (found == choices_.end()) {
    found = choices_.try_emplace(size, stream, [&] { put_choice(size, stream.get()); }).first;
  }
  head_.send_masks(rows, stream);
  found->second.launch(stream);
}

// Enqueues everything of a step except the choice of tokens in restricted rows.
void DecodeSteps::put_step(const Shape& shape, cudaStream_t stream) {
  const auto& view = cache_.view();
  begin_step({.host = inputs_.data(),
              .slots = slots_.data(),
              .lengths = view.lengths,
              .frequencies = model_.frequencies().data(),
              .rope_factors = model_.rope_factors().data(),
              .angles = angles_.data(),
              .tables = model_.rope_tables(),
              .half = model_.rotary_channels() / 2,
              .embedding = model_.weights().embedding.view(),
              .first_token = model_.own_tokens().begin,
              .residual = shape.kernel ? kernel_->residual()
                                       : paths_.of(shape.size, shape.adapts).residual()},
             shape.size, stream);
  if (shape.planned) {
    attention_of(shape.padded).plan(slots_.data(), shape.size, stream, shape.with_reads);
  }
  bool has_logits = shape.with_logits;
  if (shape.kernel) {
    const StepKernel::End end{results_.data(), cache_.reported_free_pages()};
    const float* const hidden = kernel_->residual().hidden;
    if (shape.with_states) {
      handed_.keep(0, hidden, shape.size, stream);
    }
    kernel_->run({slots_.data(), angles_.data(), shape.size, shape.with_logits,
                  shape.with_states ? &handed_ : nullptr},
                 *shape.kernel, shape.with_logits ? nullptr : &end, stream);
    if (shape.with_states) {
      handed_.keep_end(hidden, shape.size, stream);
    }
    if (!shape.with_logits) {
      return;
    }
    head_.complete_logits(shape.size, stream);
  } else {
    has_logits = put_layers(shape, stream);
  }
  if (shape.restricted) {
    return;
  }
  has_logits ? put_choice(shape.size, stream) : put_end(shape.size, stream);
}

// Enqueues the choice of tokens by their logits, and the end of the step.
void DecodeSteps::put_choice(int size, cudaStream_t stream) {
  if (head_.is_first()) {
    head_.sample(size, stream);
  }
  put_end(size, stream);
}

// Enqueues the end of the step, after the choice of tokens.
void DecodeSteps::put_end(int size, cudaStream_t stream) {
  end_step({.slots = slots_.data(),
            .cache = cache_.view(),
            .tokens = head_.tokens(),
            .host_tokens = results_.data(),
            .host_free_pages = cache_.reported_free_pages()},
           size, stream);
}

// Returns whether there are logits.
bool DecodeSteps::put_layers(const Shape& shape, cudaStream_t stream) {
  LinearPath& linear = paths_.of(shape.size, shape.adapts);
  linear.adapt(shape.adapts ? adapted_.from() : ops::cuda::LowRankRows{});
  linear.take_tokens(inputs_.data() + shape.size);
  kvcache::cuda::TokenAttention& attention = attention_of(shape.padded);
  // Appending reads the slots, which begin_step() writes, before its predecessor is complete. So a
  // kernel that has waited for begin_step() must come before it: the plan's.
  const bool overlap = attention.has_plan();
  const StepAngles angles{angles_.data(), elements_of(shape.size, model_.rotary_channels() / 2)};
  const ops::cuda::RecurrentRows sequences{
      .sequences = shape.size, .slots = slots_.data(), .states = cache_.states().table()};
  const StreamRows nothing(model_);
  const StreamRows& states = shape.with_states ? handed_ : nothing;
  walk_layers(linear, model_, {.qkv = {.exact = qkv_.data()}, .attended = attended_.data()},
              sequences, states, shape.size, overlap, stream,
              [&](int layer, const kvcache::cuda::QkvRows& qkv) {
                attention.append_and_attend(model_.projection(layer, linear.hidden(), angles),
                                            {.layer = model_.cache_layer(layer),
                                             .batch = shape.size,
                                             .slots = slots_.data(),
                                             .qkv = qkv.exact,
                                             .queries = queries_.data()},
                                            model_.scale(), attended_.data(), stream,
                                            data_or_null(model_.layer(layer).sinks));
              });
  const bool has_logits =
      linear.finish_step(attended_.data(), shape.with_logits, head_, shape.size, stream);
  states.keep_end(linear.hidden(), shape.size, stream);
  return has_logits;
}

}  // namespace winnow::model::cuda
