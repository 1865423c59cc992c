// What files of a family call its tensors, and which of them they hold as one.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace winnow::model {

/// Tensor names that differ between families; "" for tensors that a family lacks.
struct TensorNames {
  /// How a family's files hold experts: each matrix by itself, or those of all in one tensor, [out,
  /// in] or transposed, with gate and up side by side (halves) or in turn (pairs).
  enum class ExpertStacks : std::uint8_t { none, halves, transposed_halves, transposed_pairs };

  std::string attention_norm = "input_layernorm";
  std::string attention_post_norm;
  std::string mlp_norm = "post_attention_layernorm";
  std::string mlp_post_norm;
  /// Files hold q, k and v as one tensor (joined_tensors.h).
  bool joins_qkv = false;
  /// The same of gate and up.
  bool joins_gate_up = false;
  /// Files hold the projections of a recurrent layer as two tensors, key head by key head: q, k, v
  /// and the gate; rates and decays. Other kinds of recurrent layers always have them as one.
  bool joins_recurrent = false;
  /// Files hold of each KV head in turn its queries, key and value in one tensor, and so their
  /// biases (GPT-NeoX, Falcon; expert_stacks.h).
  bool joins_heads = false;
  std::string feed_forward = "mlp";
  // Of a feed-forward with experts:
  std::string router = "gate";
  std::string expert_gate = "gate_proj";
  std::string expert_up = "up_proj";
  std::string expert_down = "down_proj";
  std::string shared_expert = "shared_expert";
  std::string choice_bias = "gate.e_score_correction_bias";
  bool choice_bias_is_row = false;  // a matrix of one row
  ExpertStacks stacks = ExpertStacks::none;
  /// Parts of the names above, or of those that are Llama's in all families, and what files have in
  /// their place (renamed_tensors.h).
  std::vector<std::pair<std::string, std::string>> renamed = {};

  bool operator==(const TensorNames&) const = default;
};

}  // namespace winnow::model
