// Which tensors a model has, under the names transformers gives them.
#include <charconv>

#include "base/error.h"
#include "base/note.h"
#include "checkpoint/json.h"
#include "model/adapter.h"
#include "model/checkpoint_parts.h"
#include "model/renamed_tensors.h"
#include "model/visit_tensors.h"

namespace winnow::model {
namespace {

using Locate = std::function<std::string(const std::string& tensor)>;

constexpr std::string_view kLayerPrefix = "model.layers.";

// A tree whose members hold nothing: of the visit only names and shapes are wanted.
struct Nothing {};
struct ExpertOfNothing {
  Nothing gate_bias, up_bias, down_bias, gate, up, down;
};
struct RecurrentOfNothing {
  Nothing input_gate, input, gate, rate, decay, taps, conv_bias, log_decay, decay_bias, skip, norm,
      output;
};
struct LatentOfNothing {
  Nothing query_down, query_bias, query_norm, norm, key_up, value_up;
};
struct LayerOfNothing {
  Nothing attention_norm, attention_norm_bias, attention_post_norm, mlp_norm, mlp_norm_bias,
      mlp_post_norm, query_norm, key_norm, query_bias, sinks, key_bias, value_bias, output_bias,
      gate_bias, up_bias, down_bias, query, key, value, output, gate, up, down, router, router_bias,
      choice_bias, shared_gate, shared_post_norm, experts_norm, experts_post_norm, router_norm,
      expert_scale, output_scale, embedding_gate, embedding_output, embedding_norm;
  RecurrentOfNothing recurrent;
  LatentOfNothing latent;
  std::vector<ExpertOfNothing> experts;
};
struct HeadOfNothing {
  Nothing fusion, input_norm, embedding_norm;
};
struct TreeOfNothing {
  Nothing embedding, head, head_bias, norm, norm_bias, layer_embedding, layer_projection,
      layer_projection_norm;
};

void check_tensor(const std::string& where, const std::string& name, const TensorView& tensor,
                  const Shape& shape) {
  require(tensor.dtype == DType::f32 || tensor.dtype == DType::f16 || tensor.dtype == DType::bf16,
          "{}: tensor {} has type {}, expected fp32, fp16 or bf16", where, in_quotes(name),
          dtype_name(tensor.dtype));
  require(tensor.shape == shape, "{}: tensor {} has shape [{}], expected [{}]", where,
          in_quotes(name), fmt::join(tensor.shape, ", "), fmt::join(shape, ", "));
}

/// The number of the layer a tensor belongs to; -1 for none.
int layer_of(std::string_view name) {
  int layer = -1;
  if (name.starts_with(kLayerPrefix)) {
    name.remove_prefix(kLayerPrefix.size());
    std::from_chars(name.data(), name.data() + name.size(), layer);
  }
  return layer;
}

/// Zeros of either sign.
bool is_zero(const TensorView& tensor) {
  if (tensor.dtype != DType::f32 && tensor.dtype != DType::f16 && tensor.dtype != DType::bf16) {
    return false;
  }
  const std::size_t size = dtype_size(tensor.dtype);
  for (std::size_t i = 0; i < tensor.bytes(); ++i) {
    const bool has_sign = i % size == size - 1;  // the last byte of an element, little-endian
    if ((tensor.data[i] & (has_sign ? std::byte{0x7F} : std::byte{0xFF})) != std::byte{0}) {
      return false;
    }
  }
  return true;
}

/// A weight or bias inside a layer that the configuration does not speak of would change what the
/// layer computes (a projection's bias, q_norm, a DMS adapter): running without it gives wrong text
/// rather than an error. RoPE's tables and biases of zeros are harmless. Layers beyond
/// num_hidden_layers are there to predict several tokens at once, or that number is wrong: a note.
void check_nothing_ignored(const Locate& where, const ModelSpec& spec,
                           const std::map<std::string, Shape>& expected,
                           const std::map<std::string, Shape>& optional, const TensorMap& tensors) {
  const std::string* beyond = nullptr;  // a tensor of such a layer
  for (const auto& [name, tensor] : tensors) {
    const int layer = layer_of(name);
    const bool parameter = name.ends_with(".weight") || name.ends_with(".bias");
    beyond = layer >= spec.layer_count() ? &name : beyond;
    if (layer < 0 || layer >= spec.layer_count() || !parameter) {
      continue;
    }
    require(expected.contains(name) || optional.contains(name) ||
                (name.ends_with(".bias") && is_zero(tensor)),
            "{}: tensor {} does not belong to the model that config.json describes{}", where(name),
            in_quotes(name),
            name.find(".dms_proj_alpha") != std::string::npos
                ? "; expected dms_separate_alpha: true there"
                : "");
  }
  if (beyond != nullptr) {
    note(
        fmt::format("{}: {} layers run, as config.json says; tensors of later ones are used by "
                    "--speculate mtp, if at all",
                    where(*beyond), spec.layer_count()));
  }
}

}  // namespace

std::map<std::string, Shape> expected_tensors(const ModelSpec& spec) {
  std::map<std::string, Shape> out;
  const auto add = [&out](const std::string& name, const Shape& shape, Nothing&) {
    out.emplace(name, shape);
  };
  TreeOfNothing tree;
  visit_ends(spec, tree, add);
  for (int layer = 0; layer < spec.layer_count(); ++layer) {
    LayerOfNothing members;
    visit_layer(spec, layer, members, add);
  }
  if (spec.draft_head) {
    HeadOfNothing head;
    visit_draft_head(spec, head, add);
  }
  for (const AdapterTensor& tensor : adapter_tensors(spec)) {
    if (!tensor.optional) {
      out.emplace(tensor.name, tensor.shape);
    }
  }
  return out;
}

std::map<std::string, Shape> optional_tensors(const ModelSpec& spec) {
  std::map<std::string, Shape> out;
  if (spec.tied_embeddings) {  // a file that has its own head all the same means it
    out.emplace("lm_head.weight", Shape{spec.vocab, spec.hidden});
  }
  for (const AdapterTensor& tensor : adapter_tensors(spec)) {
    if (tensor.optional) {
      out.emplace(tensor.name, tensor.shape);
    }
  }
  return out;
}

void detail::check_tensors(const Locate& where, const ModelSpec& spec, const TensorMap& tensors) {
  const auto expected = expected_tensors(spec);
  const auto optional = optional_tensors(spec);
  const auto in_file = [&](const std::string& name) { return stored_name(spec.names, name); };
  for (const auto& [name, shape] : expected) {
    const auto found = tensors.find(name);
    const bool may_be_tied = name == "lm_head.weight" && !spec.draft_head;
    require(found != tensors.end(), "{}: tensor {} is missing, expected shape [{}]{}", where(name),
            in_quotes(in_file(name)), fmt::join(shape, ", "),
            may_be_tied ? " (or tie_word_embeddings: true in config.json)" : "");
    check_tensor(where(name), in_file(name), found->second, shape);
  }
  for (const auto& [name, shape] : optional) {
    if (const auto found = tensors.find(name); found != tensors.end()) {
      check_tensor(where(name), in_file(name), found->second, shape);
    }
  }
  check_nothing_ignored(where, spec, expected, optional, tensors);
}

}  // namespace winnow::model
