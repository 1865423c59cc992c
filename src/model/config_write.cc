#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "checkpoint/json_text.h"
#include "model/config.h"
#include "model/config_fields.h"
#include "model/families/families.h"

namespace winnow::model {
namespace {

using Json = nlohmann::ordered_json;

/// The double whose decimal form is the float's shortest one: 1e-05, not 9.999999747378752e-06.
double shortest(float value) {
  return std::strtod(fmt::format("{}", value).c_str(), nullptr);
}

/// 8.0 as 8: NVIDIA's and shisa-ai's readers expect whole numbers as integers.
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
void put_names(const ModelSpec& spec, Json& out) {
  std::string architecture(family_of(spec).architecture);
  std::string type = spec.family;
  if (spec.dms && !detail::is_shisa_convention(*spec.dms)) {
    architecture += "DMS";
    type += spec.dms->source == DmsConfig::Source::borrowed ? "_dms" : "";
  } else if (spec.dmc) {
    architecture += "DMC";
    type += "_dmc";
  }
  out["architectures"] = {architecture};
  out["model_type"] = type;
}

void put_tokens(const ModelSpec& spec, Json& out) {
  if (spec.bos_token) {
    out["bos_token_id"] = *spec.bos_token;
  }
  if (spec.eos_tokens.size() == 1) {
    out["eos_token_id"] = spec.eos_tokens.front();
  } else if (!spec.eos_tokens.empty()) {
    out["eos_token_id"] = spec.eos_tokens;
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

Json shisa_metadata(const ModelSpec& spec) {
  Json out;
  out["window_size"] = spec.dms->window;
  out["alpha_scale"] = shortest(spec.dms->scale);
  out["alpha_offset"] = shortest(spec.dms->offset);
  if (spec.dms->target_cr != 0.0) {
    out["target_cr"] = ratio(spec.dms->target_cr);
  }
  out["context_len"] = spec.max_positions;
  return out;
}

/// Removes the keys of an earlier retrofit and of quantisation, which the weights no longer have.
void remove_what_is_past(Json& out) {
  out.erase("quantization_config");
  out.erase("compression_config");
  for (auto key = out.begin(); key != out.end();) {
    const bool retrofit = key.key().starts_with("dms_") || key.key().starts_with("dmc_");
    key = retrofit ? out.erase(key) : std::next(key);
  }
}

/// Restores the constants of with_quoted_constants() to Python's form; keys stay quoted.
std::string with_plain_constants(std::string text) {
  for (const std::string_view constant : {"\"NaN\"", "\"Infinity\"", "\"-Infinity\""}) {
    std::size_t at = 0;
    while ((at = text.find(constant, at)) != std::string::npos) {
      const bool key = text.compare(at + constant.size(), 1, ":") == 0;
      const std::string_view plain = constant.substr(1, constant.size() - 2);
      text.replace(at, constant.size(), key ? constant : plain);
      at += constant.size() - (key ? 0 : 2);
    }
  }
  return text;
}

Json config_document(const ModelSpec& spec, const std::string& text) {
  Json out = json_from<Json>(text);
  put_names(spec, out);
  if (spec.has_equal_heads() && !spec.has_latents()) {  // with a latent it is 1, unlike in files
    out["num_key_value_heads"] = spec.attention().kv_heads;
  }
  out.erase("dtype");
  out["torch_dtype"] = detail::torch_dtype_name(spec.dtype);
  put_tokens(spec, out);
  remove_what_is_past(out);
  if (spec.dms) {
    put_dms(*spec.dms, out);
  }
  if (spec.dmc) {
    out["dmc_alpha_offset"] = shortest(spec.dmc->offset);
    if (spec.dmc->target_cr != 0.0) {
      out["dmc_cr"] = ratio(spec.dmc->target_cr);
    }
    if (spec.dmc->per_layer) {
      out["dmc_alpha_per"] = "layer";
    }
    if (spec.dmc->pooled > 0) {
      out["dmc_fixed_pooling"] = spec.dmc->pooled;
    }
  }
  return out;
}

}  // namespace

ConfigTexts format_spec(const ModelSpec& spec) {
  ConfigTexts texts;
  const std::optional<std::string> quoted = with_quoted_constants(spec.config.text);
  texts.config = json_text(config_document(spec, quoted.value_or(spec.config.text)), 2) + "\n";
  if (quoted) {
    texts.config = with_plain_constants(std::move(texts.config));
  }
  Json generation = Json::object();
  put_tokens(spec, generation);
  texts.generation_config = json_text(generation, 2) + "\n";
  if (spec.dms && detail::is_shisa_convention(*spec.dms)) {
    texts.dms_metadata = json_text(shisa_metadata(spec), 2) + "\n";
  }
  // Reading it back is the check: a description that does not survive must not reach the disk.
  require(parse_spec(texts) == spec,
          "this model's description cannot be saved: it differs from its config.json in more than "
          "training changes");
  return texts;
}

}  // namespace winnow::model
