#include "train/memory_plan.h"

#include <algorithm>

#include "base/error.h"
#include "base/host_memory.h"
#include "parallel/launched_as.h"
#include "train/backend.h"
#include "train/cuda_memory/memory_plan.h"
#include "train/decoder.h"
#include "train/head.h"
#include "train/parameters.h"
#include "train/sharded_tensors.h"

namespace winnow::train {
namespace {

// Memory of the program, its libraries and a tokenizer (measured).
constexpr std::size_t kProgram = std::size_t{48} << 20;

std::int64_t count_all(const model::ModelSpec& spec) {
  std::int64_t total = 0;
  for (const auto& [name, shape] : model::expected_tensors(spec)) {
    total += element_count(shape);
  }
  return total;
}

int widest_network(const model::ModelSpec& spec) {
  return std::max(spec.dense_width(), spec.experts() != nullptr ? spec.experts()->intermediate : 0);
}

// Floats per token of an attention layer's activations, including those for its gates.
int attention_floats(const model::AttentionSpec& attention) {
  const bool norms_heads = attention.query_key_norm != model::AttentionSpec::QueryKeyNorm::none;
  const int around =  // around the one KV head of a latent
      attention.latent ? attention.query_outputs() + attention.output_width() +
                             3 * attention.latent->query_rank + attention.key_width()
                       : 0;
  return (norms_heads ? 3 : 2) * (attention.query_width() + attention.key_width()) + around +
         (attention.output_gate ? 4 * attention.attended_width() : 0);
}

int recurrent_floats(const model::RecurrentSpec& recurrent) {
  return 6 * recurrent.channels() + 6 * recurrent.heads.value_width();
}

// Gradients of one layer's activations, at the peak.
std::size_t backward_bytes(const model::ModelSpec& spec, std::size_t tokens) {
  const model::FeedForwardSpec* experts = spec.experts();
  // An expert's tokens, at worst all tokens, are gathered, and so are their gradients.
  const int streams = experts == nullptr ? 1 : experts->experts->beside ? 8 : 4;
  int most = 3 * widest_network(spec) + streams * spec.hidden;
  for (const model::LayerSpec& layer : spec.layers) {
    const int mixer = layer.attention() != nullptr ? attention_floats(*layer.attention())
                                                   : recurrent_floats(*layer.recurrent());
    most = std::max(most, mixer + spec.hidden);
  }
  if (spec.layer_embeddings) {
    most = std::max(most, 3 * spec.layer_count() * spec.layer_embeddings->width);
  }
  return tokens * static_cast<std::size_t>(most) * sizeof(float);
}

// Operands of products rounded to bf16, at the peak.
std::size_t operand_bytes(const model::ModelSpec& spec, std::size_t tokens, std::size_t head) {
  const model::RecurrentSpec* recurrent = spec.recurrent();
  const int projected = recurrent == nullptr ? 0 : recurrent->channels();
  const auto widest =
      static_cast<std::size_t>(std::max(widest_network(spec), projected) + spec.hidden);
  return std::max(tokens * widest * dtype_size(DType::bf16), head / 2);
}

// Weights, gradients and moments of the CPU's ranks.
std::vector<MemoryPlan::Part> state_parts(const TrainingOptions& options,
                                          const ParameterList& list) {
  const std::size_t all = list.size() * sizeof(float);
  std::size_t held = 0;
  std::size_t whole = 0;
  for (int rank = 0; rank < options.ranks; ++rank) {
    const Sharding sharding(list, options.zero_stage, rank, options.ranks,
                            options.muon.has_value());
    held = std::max(held, sharding.held() * sizeof(float));
    whole = ShardedTensors::whole_at_once(sharding) * sizeof(float);
  }
  if (options.zero_stage == ZeroStage::everything) {
    return {{"a rank's weights, fp32", held},
            {"a rank's gradients, fp32", held},
            {"a rank's moments, fp32", 2 * held},
            {"what is whole at a time, fp32", 2 * whole},
            {"all weights while rank 0 saves", all, true}};
  }
  if (options.ranks == 1) {
    return {
        {"trained weights, fp32", all}, {"their gradients, fp32", all}, {"moments, fp32", 2 * all}};
  }
  return {{"trained weights, fp32", all},
          {"their gradients, fp32", all},
          {"a rank's moments, fp32", 2 * held},
          {"moments while rank 0 saves", all, true}};
}

}  // namespace

std::size_t MemoryPlan::of_one() const {
  std::size_t sum = 0;
  for (const Part& part : parts) {
    sum += part.bytes;
  }
  return sum;
}

std::size_t MemoryPlan::total() const {
  std::size_t sum = 0;
  for (const Part& part : parts) {
    sum += part.once ? part.bytes : part.bytes * static_cast<std::size_t>(ranks);
  }
  return sum;
}

MemoryPlan plan_memory(const TrainingOptions& options, const model::ModelSpec& base,
                       std::size_t available) {
  const model::ModelSpec spec = student_config(options, base);
  const bool frozen = spec.dms && spec.dms->source == model::DmsConfig::Source::adapter;
  MemoryPlan plan;
  plan.parameters = count_all(spec);
  for (const auto& [name, shape] : tensor_shapes(spec)) {
    if (!frozen || role_of(name, shape) == Role::decision) {
      plan.trained += element_count(shape);
    }
  }
  if (options.cuda_device) {
    plan.parts = cuda::device_parts(options, base, available);
    return plan;
  }
  plan.ranks = parallel::launched_as() ? 1 : options.ranks;
  const auto trained = static_cast<std::size_t>(plan.trained);
  const std::size_t tokens = options.micro_batch * options.length;
  const auto add = [&plan](std::string name, std::size_t bytes, bool once = false) {
    plan.parts.push_back({std::move(name), bytes, once});
  };
  plan.parts = state_parts(options, ParameterList(spec, trained_part(spec)));
  add("base weights as stored", static_cast<std::size_t>(count_all(base)) * dtype_size(base.dtype),
      true);
  add("a copy while saving", trained * dtype_size(base.dtype), true);
  add("activations", Decoder::bytes(spec, tokens, host_keep(options)) +
                         tokens * static_cast<std::size_t>(spec.hidden) * sizeof(float));
  if (options.retrofit) {
    add("activations of the teacher", Decoder::bytes(base, tokens, Keep::nothing));
  }
  const std::size_t head = head_bytes(spec, tokens, options.retrofit.has_value());
  add("gradients of activations", std::max(backward_bytes(spec, tokens), head));
  add("rounded operands", operand_bytes(spec, tokens, head));
  add("program and gaps", kProgram + plan.of_one() / 20);
  return plan;
}

std::size_t available_memory(const TrainingOptions& options) {
  if (options.cuda_device) {
    return cuda::available_device_memory(options);
  }
  return available_host_memory();
}

void require_fits(const MemoryPlan& plan, std::size_t available) {
  constexpr double kGib = 0x1p30;
  require(plan.total() <= available,
          "training needs about {:.2f} GiB of memory, {:.2f} GiB are available: a smaller "
          "--micro-batch or --length needs less",
          static_cast<double>(plan.total()) / kGib, static_cast<double>(available) / kGib);
}

}  // namespace winnow::train
