#include "train/cuda_memory/memory_plan.h"

#include "train/backend.h"
#include "train/cuda_memory/activations.h"
#include "train/cuda_memory/decoder.h"
#include "train/cuda_memory/head.h"
#include "train/cuda_memory/muon_plan.h"
#include "train/cuda_memory/weights.h"
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
        {"a rank's weights, gradients, moments", sharded_weights_bytes(spec, of_ranks)});
    parts.push_back({"two whole layers, bf16", 2 * largest_layer(base) * sizeof(bf16)});
  } else {
    parts.push_back({"trained weights, gradients, moments", whole_weights_bytes(spec, of_ranks)});
  }
  if (options.muon) {
    parts.push_back(
        {"Muon's products", muon_bytes(list, of_ranks.own().sections().front().partition)});
  }
  if (options.fp8_products) {
    parts.push_back({"fp8 copies of matrices", fp8_bytes(options, base)});
  }
  if (distilled) {
    parts.push_back(
        {"teacher's weights, bf16", frozen_weights_bytes(base, options.zero_stage, options.ranks)});
    parts.push_back({"activations of the teacher", decoder_bytes(base, tokens, Keep::nothing)});
  }
  parts.push_back({keep == Keep::all ? "activations, kept" : "activations, recomputed",
                   decoder_bytes(spec, tokens, keep)});
  const std::size_t stream = tokens * static_cast<std::size_t>(spec.hidden);
  parts.push_back({"gradients of activations",
                   ScratchBuffers::bytes(spec, tokens) + stream * (sizeof(float) + sizeof(bf16))});
  parts.push_back(
      {"logits",
       HeadSizes(spec, tokens, distilled, HeadSizes::chunk_for(options.zero_stage)).bytes()});
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

}  // namespace winnow::train::cuda
