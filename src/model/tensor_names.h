// The names of a family's tensors in files, and which tensors files join.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace winnow::model {

/// Tensor names that differ between families; "" for tensors that a family lacks.
struct TensorNames {
  /// How files store experts: one tensor per matrix, or one for all experts, [out, in] or
  /// transposed, with gate and up as two halves or interleaved (pairs).
  enum class ExpertStacks : std::uint8_t { none, halves, transposed_halves, transposed_pairs };

  std::string attention_norm = "input_layernorm";
  std::string attention_post_norm;
  std::string mlp_norm = "post_attention_layernorm";
  std::string mlp_post_norm;
  /// Files join q, k and v in one tensor (joined_tensors.h).
  bool joins_qkv = false;
  /// Files join gate and up in one tensor.
  bool joins_gate_up = false;
  /// Files join the projections of a recurrent layer in two tensors, key head by key head: q, k, v
  /// and the gate; rates and decays. Other kinds of recurrent layers always join them in one.
  bool joins_recurrent = false;
  /// Files join queries, key and value of each KV head in one tensor, head after head, and their
  /// biases in the same way (GPT-NeoX, Falcon; expert_stacks.h).
  bool joins_heads = false;
  std::string feed_forward = "mlp";
  // Names of a feed-forward with experts:
  std::string router = "gate";
  std::string expert_gate = "gate_proj";
  std::string expert_up = "up_proj";
  std::string expert_down = "down_proj";
  std::string shared_expert = "shared_expert";
  std::string choice_bias = "gate.e_score_correction_bias";
  bool choice_bias_is_row = false;  // files store it as a matrix of one row
  ExpertStacks stacks = ExpertStacks::none;
  /// Replacements in the names above and in the names that all families share with Llama: from
  /// part, to part (renamed_tensors.h).
  std::vector<std::pair<std::string, std::string>> renamed = {};
  /// Of the tensors in files only those whose names begin so belong to the model; "": all.
  std::string within = {};

  bool operator==(const TensorNames&) const = default;
};

}  // namespace winnow::model
