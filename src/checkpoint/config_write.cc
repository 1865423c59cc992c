#include <cstdlib>

#include "base/error.h"
#include "checkpoint/config_parts.h"

namespace winnow {
namespace {

using Json = nlohmann::ordered_json;

/// The double whose decimal form is the float's shortest one: 1e-05, not 9.999999747378752e-06.
double shortest(float value) {
  return std::strtod(fmt::format("{}", value).c_str(), nullptr);
}

/// 8.0 as 8: NVIDIA's and shisa-ai's readers expect an integer where it is one.
Json ratio(double value) {
  const auto whole = static_cast<std::int64_t>(value);
  return static_cast<double>(whole) == value ? Json(whole) : Json(value);
}

/// The names by which transformers chooses a class.
///
/// Transformers goes by model_type alone and ignores keys it does not know. An adapter leaves the
/// model itself as it was, so there the plain name is right: transformers runs the model without
/// compression. A model with a borrowed channel run as a plain one gives subtly wrong text without
/// any warning, and so does DMC: those get a model_type that transformers refuses. The exception is
/// shisa-ai's convention, written exactly as shisa-ai publishes it because its engine goes by the
/// plain name.
void put_names(const ModelConfig& config, Json& out) {
  std::string architecture = detail::architecture_name(config.family);
  std::string type = detail::model_type_name(config.family);
  if (config.dms && !detail::is_shisa_convention(*config.dms)) {
    architecture += "DMS";
    type += config.dms->source == DmsConfig::Source::borrowed ? "_dms" : "";
  } else if (config.dmc) {
    architecture += "DMC";
    type += "_dmc";
  }
  out["architectures"] = {architecture};
  out["model_type"] = type;
}

void put_sizes(const ModelConfig& config, Json& out) {
  out["hidden_size"] = config.hidden;
  out["num_hidden_layers"] = config.layers;
  out["num_attention_heads"] = config.heads;
  out["num_key_value_heads"] = config.kv_heads;
  out["head_dim"] = config.head_dim;
  out["intermediate_size"] = config.intermediate;
  out["vocab_size"] = config.vocab;
  out["max_position_embeddings"] = config.max_positions;
  out["hidden_act"] = "silu";
  out["rms_norm_eps"] = shortest(config.norm_eps);
  out["tie_word_embeddings"] = config.tied_embeddings;
}

void put_rope(const RopeConfig& rope, Json& out) {
  out["rope_theta"] = rope.theta;
  switch (rope.scaling) {
    case RopeConfig::Scaling::none:
      out["rope_scaling"] = nullptr;
      break;
    case RopeConfig::Scaling::linear:
      out["rope_scaling"] = {{"rope_type", "linear"}, {"factor", rope.factor}};
      break;
    case RopeConfig::Scaling::llama3:
      out["rope_scaling"] = {{"rope_type", "llama3"},
                             {"factor", rope.factor},
                             {"low_freq_factor", rope.low_freq_factor},
                             {"high_freq_factor", rope.high_freq_factor},
                             {"original_max_position_embeddings", rope.original_context}};
      break;
  }
}

/// What transformers would otherwise assume of a family.
void put_family(const ModelConfig& config, Json& out) {
  switch (config.family) {
    case Family::llama:
      out["attention_bias"] = config.output_bias;
      out["mlp_bias"] = config.mlp_bias;
      break;
    case Family::qwen2:
      out["use_sliding_window"] = false;
      break;
    case Family::qwen3:
      out["attention_bias"] = config.output_bias;
      out["use_sliding_window"] = false;
      break;
    case Family::mistral:
      out["sliding_window"] = nullptr;
      break;
  }
}

void put_tokens(const ModelConfig& config, Json& out) {
  if (config.bos_token) {
    out["bos_token_id"] = *config.bos_token;
  }
  if (config.eos_tokens.size() == 1) {
    out["eos_token_id"] = config.eos_tokens.front();
  } else if (!config.eos_tokens.empty()) {
    out["eos_token_id"] = config.eos_tokens;
  }
}

void put_dms(const DmsConfig& dms, Json& out) {
  out["dms_window_size"] = dms.window;
  out["dms_alpha_scale"] = shortest(dms.scale);
  out["dms_initial_alpha_offset"] = shortest(dms.offset);
  out["dms_separate_alpha"] = dms.source == DmsConfig::Source::adapter;
  out["dms_alpha_per"] = dms.per_layer ? "layer" : "head";
  out["dms_disable_eviction"] = !dms.evict;
  if (dms.target_cr != 0.0) {
    out["dms_cr"] = ratio(dms.target_cr);
  }
  out["dms_decision_shift"] = dms.shift;
  out["dms_borrowed_channel"] = dms.channel;
  out["dms_rezero_after_rope"] = dms.rezero_after_rope;
}

Json shisa_metadata(const ModelConfig& config) {
  Json out;
  out["window_size"] = config.dms->window;
  out["alpha_scale"] = shortest(config.dms->scale);
  out["alpha_offset"] = shortest(config.dms->offset);
  if (config.dms->target_cr != 0.0) {
    out["target_cr"] = ratio(config.dms->target_cr);
  }
  out["context_len"] = config.max_positions;
  return out;
}

Json config_document(const ModelConfig& config) {
  Json out;
  put_names(config, out);
  put_sizes(config, out);
  put_rope(config.rope, out);
  put_family(config, out);
  out["torch_dtype"] = detail::torch_dtype_name(config.dtype);
  put_tokens(config, out);
  if (config.dms) {
    put_dms(*config.dms, out);
  }
  if (config.dmc) {
    out["dmc_alpha_offset"] = shortest(config.dmc->offset);
    if (config.dmc->target_cr != 0.0) {
      out["dmc_cr"] = ratio(config.dmc->target_cr);
    }
    if (config.dmc->per_layer) {
      out["dmc_alpha_per"] = "layer";
    }
    if (config.dmc->pooled > 0) {
      out["dmc_fixed_pooling"] = config.dmc->pooled;
    }
  }
  return out;
}

}  // namespace

ConfigTexts format_config(const ModelConfig& config) {
  ConfigTexts texts;
  texts.config = config_document(config).dump(2) + "\n";
  Json generation = Json::object();
  put_tokens(config, generation);
  texts.generation_config = generation.dump(2) + "\n";
  if (config.dms && detail::is_shisa_convention(*config.dms)) {
    texts.dms_metadata = shisa_metadata(config).dump(2) + "\n";
  }
  // Reading it back is the check: a configuration that does not survive must not reach the disk.
  require(parse_config(texts) == config,
          "this model configuration cannot be saved: its fields contradict its family or are ones "
          "that config.json cannot say");
  return texts;
}

}  // namespace winnow
