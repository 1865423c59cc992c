#include "train/cuda/memory_plan.h"

#include <algorithm>
#include <limits>

#include "parallel/launched_as.h"
#include "parallel/rank_device.h"
#include "train/backend.h"
#include "train/cuda/decoder.h"
#include "train/cuda/head.h"
#include "train/cuda/muon.h"
#include "train/cuda/sharded_weights.h"
#include "train/fp8_matrices.h"

namespace winnow::train::cuda {
namespace {

// Scratch memory of cuBLASLt, kernels and graphs (measured).
constexpr std::size_t kContext = std::size_t{640} << 20;

std::vector<MemoryPlan::Part> parts_keeping(Keep keep, const TrainingOptions& options,
                                            const model::ModelSpec& base) {
  const model::ModelSpec spec = student_config(options, base);
  const ParameterList list(spec, trained_part(spec));
  const std::size_t tokens = options.micro_batch * options.length;
  const bool distilled = options.retrofit.has_value();
  std::vector<MemoryPlan::Part> parts;
  const RankParts of_ranks(list, spec.layer_count(), options.zero_stage, 0, options.ranks,
                           options.muon.has_value());
  if (options.zero_stage == ZeroStage::everything) {
    parts.push_back(
        {"a rank's weights, gradients, moments", ShardedWeights::bytes(spec, of_ranks)});
    parts.push_back({"two whole layers, bf16", 2 * largest_layer(base) * sizeof(bf16)});
  } else {
    parts.push_back({"trained weights, gradients, moments", WholeWeights::bytes(spec, of_ranks)});
  }
  if (options.muon) {
    parts.push_back(
        {"Muon's products", Muon::bytes(list, of_ranks.own().sections().front().partition)});
  }
  if (options.fp8_products) {
    parts.push_back({"fp8 copies of matrices", fp8_bytes(options, base)});
  }
  if (distilled) {
    parts.push_back(
        {"teacher's weights, bf16", FrozenWeights::bytes(base, options.zero_stage, options.ranks)});
    parts.push_back(
        {"activations of the teacher", DeviceDecoder::bytes(base, tokens, Keep::nothing)});
  }
  parts.push_back({keep == Keep::all ? "activations, kept" : "activations, recomputed",
                   DeviceDecoder::bytes(spec, tokens, keep)});
  const std::size_t stream = tokens * static_cast<std::size_t>(spec.hidden);
  parts.push_back({"gradients of activations",
                   LayerScratch::bytes(spec, tokens) + stream * (sizeof(float) + sizeof(bf16))});
  parts.push_back({"logits", DeviceHead::bytes(spec, tokens, distilled,
                                               DeviceHead::chunk_for(options.zero_stage))});
  parts.push_back({"cuBLAS, kernels, graphs", kContext});
  return parts;
}

// 1/8 of the plan's bytes stays free: the engine measures held-out text on the same device.
constexpr std::size_t kHeadroom = 8;

}  // namespace

Keep choose_keep(const TrainingOptions& options, const model::ModelSpec& base,
                 std::size_t available) {
  MemoryPlan plan;
  plan.parts = parts_keeping(Keep::all, options, base);
  const bool keep = options.activations == Activations::keep ||
                    (options.activations == Activations::automatic &&
                     plan.total() + plan.total() / kHeadroom <= available);
  return keep ? Keep::all : Keep::inputs;
}

std::vector<MemoryPlan::Part> device_parts(const TrainingOptions& options,
                                           const model::ModelSpec& base, std::size_t available) {
  return parts_keeping(choose_keep(options, base, available), options, base);
}

std::size_t available_device_memory(const TrainingOptions& options) {
  std::size_t available = std::numeric_limits<std::size_t>::max();
  const int ranks = parallel::launched_as() ? 1 : options.ranks;  // of this process
  for (int rank = 0; rank < ranks; ++rank) {
    winnow::cuda::use_device(parallel::device_of_rank(*options.cuda_device, rank, options.ranks));
    available = std::min(available, winnow::cuda::free_memory());
  }
  return available;
}

}  // namespace winnow::train::cuda
