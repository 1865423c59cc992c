#include "model/gguf_tensors.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "checkpoint/gguf/block_formats.h"
#include "checkpoint/json.h"
#include "model/visit_tensors.h"

namespace winnow::model {
namespace {

using Pair = std::pair<std::string_view, std::string_view>;

constexpr std::array<Pair, 3> kEnds{{{"model.embed_tokens.weight", "token_embd.weight"},
                                     {"model.norm.weight", "output_norm.weight"},
                                     {"lm_head.weight", "output.weight"}}};

/// Names of a layer's parts in all families.
constexpr std::array<Pair, 27> kParts{{{"input_layernorm", "attn_norm"},
                                       {"pre_feedforward_layernorm", "ffn_norm"},
                                       {"post_feedforward_layernorm", "post_ffw_norm"},
                                       {"self_attn.q_proj", "attn_q"},
                                       {"self_attn.k_proj", "attn_k"},
                                       {"self_attn.v_proj", "attn_v"},
                                       {"self_attn.o_proj", "attn_output"},
                                       {"self_attn.q_norm", "attn_q_norm"},
                                       {"self_attn.k_norm", "attn_k_norm"},
                                       {"self_attn.sinks", "attn_sinks"},
                                       {"mlp.gate_proj", "ffn_gate"},
                                       {"mlp.up_proj", "ffn_up"},
                                       {"mlp.down_proj", "ffn_down"},
                                       {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
                                       {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
                                       {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
                                       {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
                                       {"post_attention_layernorm", "ffn_norm"},
                                       {"linear_attn.in_proj_qkv", "attn_qkv"},
                                       {"linear_attn.in_proj_z", "attn_gate"},
                                       {"linear_attn.in_proj_a", "ssm_alpha"},
                                       {"linear_attn.in_proj_b", "ssm_beta"},
                                       {"linear_attn.conv1d", "ssm_conv1d"},
                                       {"linear_attn.A_log", "ssm_a"},
                                       {"linear_attn.dt_bias", "ssm_dt"},
                                       {"linear_attn.norm", "ssm_norm"},
                                       {"linear_attn.out_proj", "ssm_out"}}};

/// Families whose "post_attention_layernorm" has the same name in GGUF.
constexpr std::array<std::string_view, 9> kPostAttentionNorm{
    "exaone4", "gemma2",   "gemma3_text",  "gpt_oss",         "olmo2",
    "olmo3",   "seed_oss", "qwen3_5_text", "qwen3_5_moe_text"};
/// Families whose queries and keys ggml rotates in neighbouring pairs.
constexpr std::array<std::string_view, 6> kPaired{"arcee",      "granite", "llama",
                                                  "ministral3", "mixtral", "smollm3"};

template <std::size_t N>
bool contains(const std::array<std::string_view, N>& families, const std::string& family) {
  return std::ranges::find(families, family) != families.end();
}

/// "model.layers.3.mlp.up_proj.weight" is layer 3, part "mlp.up_proj", kind ".weight".
struct LayerTensor {
  int layer = 0;
  std::string part;
  std::string kind;
};

std::optional<LayerTensor> in_layer(const std::string& name) {
  constexpr std::string_view kLayers = "model.layers.";
  const std::size_t dot = name.find('.', kLayers.size());
  if (!name.starts_with(kLayers) || dot == std::string::npos) {
    return std::nullopt;
  }
  LayerTensor tensor;
  std::from_chars(name.data() + kLayers.size(), name.data() + dot, tensor.layer);
  std::string rest = name.substr(dot + 1);
  // Names without a kind.
  if (rest == "self_attn.sinks") {
    rest += ".weight";
  } else if (rest == "linear_attn.dt_bias") {
    rest += ".bias";
  } else if (rest == "linear_attn.A_log") {
    tensor.part = rest;
    return tensor;
  }
  const std::size_t last = rest.rfind('.');
  tensor.part = rest.substr(0, last);
  tensor.kind = last == std::string::npos ? "" : rest.substr(last);
  return tensor;
}

/// Puts channel c of a head and its partner c + head / 2 side by side.
GgufOrder paired(std::int64_t head) {
  return [head](std::int64_t row) {
    const std::int64_t channel = row % head;
    return row - channel + channel % (head / 2) * 2 + channel / (head / 2);
  };
}

/// The number of value heads per key head.
std::int64_t group_of(const ops::DeltaRuleShape& heads) {
  return heads.value_heads / heads.key_heads;
}

/// From `first` on, value heads of `size` each: the first of every key head, then the second.
GgufOrder tiled(const ops::DeltaRuleShape& heads, std::int64_t first, std::int64_t size) {
  return [=, keys = heads.key_heads, group = group_of(heads)](std::int64_t row) {
    if (row < first) {
      return row;
    }
    const std::int64_t head = (row - first) / size;
    return first + (head % group * keys + head / group) * size + (row - first) % size;
  };
}

/// Rates and decays of each key head's `group` value heads, side by side.
GgufOrder beside(std::int64_t group, bool decays) {
  return [=](std::int64_t row) {
    return row / group * 2 * group + (decays ? group : 0) + row % group;
  };
}

/// Phi-3's q, k and v are rows of one tensor, gate and up of another.
GgufPlace joined_place(const ModelSpec& spec, const LayerTensor& tensor) {
  const AttentionSpec& attention = *spec.layer(tensor.layer).attention();
  const std::int64_t query = attention.query_width();
  const std::int64_t key = attention.key_width();
  const std::int64_t inner = spec.layer(tensor.layer).feed_forward.intermediate;
  const auto place = [&](const char* stored, std::int64_t rows, std::int64_t first) {
    return GgufPlace{.tensor = fmt::format("blk.{}.{}{}", tensor.layer, stored, tensor.kind),
                     .shape = {rows, spec.hidden},
                     .first_row = first};
  };
  const std::int64_t all = query + key + attention.value_width();
  if (tensor.part == "self_attn.q_proj") {
    return place("attn_qkv", all, 0);
  }
  if (tensor.part == "self_attn.k_proj") {
    return place("attn_qkv", all, query);
  }
  if (tensor.part == "self_attn.v_proj") {
    return place("attn_qkv", all, query + key);
  }
  return tensor.part == "mlp.gate_proj" ? place("ffn_up", 2 * inner, 0)
         : tensor.part == "mlp.up_proj" ? place("ffn_up", 2 * inner, inner)
                                        : GgufPlace{};
}

/// A router, or an expert's tensor, which is one of a stack.
GgufPlace expert_place(const ModelSpec& spec, const LayerTensor& tensor, const Shape& shape) {
  const std::optional<ExpertsSpec>& experts = spec.layer(tensor.layer).feed_forward.experts;
  const std::string& prefix = spec.names.feed_forward;
  if (!experts) {
    return {};
  }
  if (tensor.part == prefix + "." + spec.names.router) {
    return {.tensor = fmt::format("blk.{}.ffn_gate_inp{}", tensor.layer, tensor.kind),
            .shape = shape};
  }
  const std::string begin = prefix + ".experts.";
  if (!tensor.part.starts_with(begin)) {
    return {};
  }
  int expert = 0;
  const char* const end = tensor.part.data() + tensor.part.size();
  const auto number = std::from_chars(tensor.part.data() + begin.size(), end, expert);
  const std::string_view matrix(std::min(number.ptr + 1, end), end);
  const char* const stack = matrix == spec.names.expert_gate ? "ffn_gate_exps"
                            : matrix == spec.names.expert_up ? "ffn_up_exps"
                                                             : "ffn_down_exps";
  GgufPlace place{.tensor = fmt::format("blk.{}.{}{}", tensor.layer, stack, tensor.kind),
                  .shape = shape};
  place.first_row = expert * (shape.size() == 2 ? shape.front() : 1);
  place.shape.insert(place.shape.begin(), experts->count);
  return place;
}

GgufPlace plain_place(const ModelSpec& spec, const LayerTensor& tensor, const Shape& shape) {
  const auto* found = std::ranges::find(kParts, tensor.part, &Pair::first);
  if (found == kParts.end()) {
    return {};
  }
  const bool keeps_name =
      tensor.part == "post_attention_layernorm" && contains(kPostAttentionNorm, spec.family);
  GgufPlace place{
      .tensor = fmt::format("blk.{}.{}{}", tensor.layer,
                            keeps_name ? "post_attention_norm" : found->second, tensor.kind),
      .shape = shape};
  if (contains(kPaired, spec.family)) {
    const AttentionSpec& attention = *spec.layer(tensor.layer).attention();
    if (tensor.part == "self_attn.q_proj" || tensor.part == "self_attn.k_proj") {
      place.row = paired(attention.head_dim);
    }
  }
  return place;
}

/// The tensors of a recurrent layer. Qwen3-Next's files, which winnow reads as models of Qwen 3.5,
/// hold rates and decays as Hugging Face does; those of Qwen 3.5 have their value heads tiled.
void order_recurrent(const RecurrentSpec& recurrent, bool is_next, const LayerTensor& tensor,
                     GgufPlace& place) {
  const ops::DeltaRuleShape& heads = recurrent.heads;
  const bool decays = tensor.part == "linear_attn.in_proj_a";
  if (tensor.part == "linear_attn.A_log") {
    place.change = GgufChange::negative_exp;
  }
  if (is_next && (decays || tensor.part == "linear_attn.in_proj_b")) {
    place.tensor = fmt::format("blk.{}.ssm_ba{}", tensor.layer, tensor.kind);
    place.shape.front() *= 2;
    place.row = beside(group_of(heads), decays);
  } else if (is_next || group_of(heads) == 1 || tensor.part == "linear_attn.norm") {
    return;
  } else if (tensor.part == "linear_attn.out_proj") {
    place.column = tiled(heads, 0, heads.value_dim);
  } else if (tensor.part == "linear_attn.in_proj_qkv" || tensor.part == "linear_attn.conv1d") {
    place.row = tiled(heads, 2 * heads.key_width(), heads.value_dim);
  } else {
    place.row = tiled(heads, 0, tensor.part == "linear_attn.in_proj_z" ? heads.value_dim : 1);
  }
}

/// The file's tensors have no dimensions of 1.
Shape squeezed(Shape shape) {
  std::erase(shape, 1);
  return shape;
}

}  // namespace

GgufPlace gguf_place(const ModelSpec& spec, const std::string& architecture,
                     const std::string& name, const Shape& shape) {
  GgufPlace place;
  if (const auto* end = std::ranges::find(kEnds, name, &Pair::first); end != kEnds.end()) {
    place = {.tensor = std::string(end->second), .shape = shape};
  } else if (const auto tensor = in_layer(name)) {
    place = spec.names.joins_qkv ? joined_place(spec, *tensor) : GgufPlace{};
    place = place.tensor.empty() ? expert_place(spec, *tensor, shape) : place;
    place = place.tensor.empty() ? plain_place(spec, *tensor, shape) : place;
    if (tensor->part.starts_with("linear_attn.")) {
      order_recurrent(*spec.recurrent(), architecture == "qwen3next", *tensor, place);
      return place;
    }
  }
  if (spec.final_norm.offset() != 0.0F && name.ends_with("norm.weight")) {
    place.change = GgufChange::plus_one;
  }
  return place;
}

std::optional<gguf::Tensor> gguf_part(const gguf::File& file, const GgufPlace& place,
                                      const Shape& shape) {
  const auto found = file.tensors().find(place.tensor);
  if (found == file.tensors().end()) {
    return std::nullopt;
  }
  gguf::Tensor part = found->second;
  require(squeezed(part.shape) == squeezed(place.shape),
          "{}: tensor {} has shape [{}], expected [{}]", file.path().string(),
          in_quotes(found->first), fmt::join(part.shape, ", "), fmt::join(place.shape, ", "));
  part.shape = shape;
  if (place.row) {
    return part;
  }
  const std::int64_t rows = element_count(place.shape) / place.shape.back();
  const std::int64_t wanted = element_count(shape) / shape.back();
  const std::size_t row_bytes = part.bytes.size() / static_cast<std::size_t>(rows);
  part.bytes = part.bytes.subspan(static_cast<std::size_t>(place.first_row) * row_bytes,
                                  static_cast<std::size_t>(wanted) * row_bytes);
  return part;
}

quantized::QuantizedMatrix gguf_matrix(const gguf::Tensor& tensor, const GgufPlace& place) {
  quantized::QuantizedMatrix matrix;
  matrix.rows = tensor.shape.front();
  matrix.cols = tensor.shape.size() == 1 ? 1 : tensor.shape.back();
  matrix.stored_bytes = tensor.bytes.size();
  const gguf::BlockFormat format = gguf::block_format(tensor.type, "");
  matrix.type = format.name;
  const std::int64_t blocks = matrix.cols / format.elements;
  const auto read_row = [=, data = tensor.bytes.data(), row_of = place.row](std::int64_t row,
                                                                            float* out) {
    const std::byte* at = data + (row_of ? row_of(row) : row) * blocks * format.bytes;
    for (std::int64_t i = 0; i < blocks; ++i, at += format.bytes, out += format.elements) {
      format.decode(at, out);
    }
  };
  matrix.codes = [=, cols = matrix.cols, column_of = place.column](std::int64_t begin,
                                                                   std::int64_t end, float* out) {
    std::vector<float> stored(column_of ? static_cast<std::size_t>(cols) : 0);
    for (std::int64_t row = begin; row < end; ++row, out += cols) {
      read_row(row, column_of ? stored.data() : out);
      for (std::int64_t i = 0; column_of && i < cols; ++i) {
        out[i] = stored[static_cast<std::size_t>(column_of(i))];
      }
    }
  };
  return matrix;
}

float gguf_original(GgufChange change, float value) {
  switch (change) {
    case GgufChange::none:
      return value;
    case GgufChange::plus_one:
      return value - 1.0F;
    case GgufChange::negative_exp:
      return std::log(-value);
  }
  return value;
}

}  // namespace winnow::model
