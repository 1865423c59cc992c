// Which layers of Qwen's families have experts, and how many.
#pragma once

#include "checkpoint/json.h"
#include "model/spec.h"

namespace winnow::model::detail {

/// The keys that a family's class reads: all keys of qwen_experts.cc, or (Qwen 3.5) neither those
/// that choose the layers with experts nor "norm_topk_prob".
enum class QwenExpertKeys : std::uint8_t { all, sizes };

/// Replaces the feed-forward by experts in every "decoder_sparse_step"th layer, except those in
/// "mlp_only_layers". `defaults`: transformers' values of absent keys.
void set_qwen_experts(const JsonObject& config, ModelSpec& spec, const ExpertsSpec& defaults,
                      int default_intermediate, QwenExpertKeys keys = QwenExpertKeys::all);

}  // namespace winnow::model::detail
