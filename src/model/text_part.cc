#include "model/text_part.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "checkpoint/json_text.h"
#include "model/families/families.h"

namespace winnow::model::detail {
namespace {

using nlohmann::json;

/// A class of models that see images, and the type of its text part where config.json does not say.
struct Wrapper {
  std::string_view model_type;
  std::string_view architecture;
  std::string_view text_type;
  bool tied_embeddings;       // unless config.json says otherwise
  bool plain_logits = false;  // without the factor that the text part's own class has
};

constexpr std::array<Wrapper, 30> kWrappers{{
    {"aya_vision", "AyaVisionForConditionalGeneration", "cohere2", true, true},
    {"cohere2_vision", "Cohere2VisionForConditionalGeneration", "cohere2", true, true},
    {"exaone4_5", "Exaone4_5_ForConditionalGeneration", "exaone4", false},
    {"gemma3", "Gemma3ForConditionalGeneration", "gemma3_text", true},
    {"gemma4", "Gemma4ForConditionalGeneration", "gemma4_text", true},
    {"gemma4_unified", "Gemma4UnifiedForConditionalGeneration", "gemma4_unified_text", true},
    {"glm4v", "Glm4vForConditionalGeneration", "glm4v_text", false},
    {"glm4v_moe", "Glm4vMoeForConditionalGeneration", "glm4v_moe_text", false},
    {"hyperclovax_vision_v2", "HyperCLOVAXVisionV2ForConditionalGeneration", "hyperclovax", true},
    {"idefics2", "Idefics2ForConditionalGeneration", "mistral", false},
    {"idefics3", "Idefics3ForConditionalGeneration", "llama", false},
    {"internvl", "InternVLForConditionalGeneration", "qwen2", true},
    {"lfm2_vl", "Lfm2VlForConditionalGeneration", "lfm2", true},
    {"lighton_ocr", "LightOnOcrForConditionalGeneration", "qwen3", true},
    {"llama4", "Llama4ForConditionalGeneration", "llama4_text", false},
    {"llava", "LlavaForConditionalGeneration", "llama", false},
    {"llava_next", "LlavaNextForConditionalGeneration", "llama", false, true},
    {"llava_onevision", "LlavaOnevisionForConditionalGeneration", "qwen2", false},
    {"mistral3", "Mistral3ForConditionalGeneration", "mistral", true},
    {"ovis2", "Ovis2ForConditionalGeneration", "qwen2", true},
    {"paligemma", "PaliGemmaForConditionalGeneration", "gemma", true},
    {"qwen2_vl", "Qwen2VLForConditionalGeneration", "qwen2_vl_text", false},
    {"qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl_text", false},
    {"qwen3_5", "Qwen3_5ForConditionalGeneration", "qwen3_5_text", false},
    {"qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe_text", false},
    {"qwen3_vl", "Qwen3VLForConditionalGeneration", "qwen3_vl_text", false},
    {"qwen3_vl_moe", "Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe_text", false},
    {"smolvlm", "SmolVLMForConditionalGeneration", "llama", false},
    {"video_llava", "VideoLlavaForConditionalGeneration", "llama", false},
    {"vipllava", "VipLlavaForConditionalGeneration", "llama", false},
}};

/// A type of text parts: the family that computes it, and what the type's class assumes where a
/// file, which may leave out what equals that, does not say.
struct TextType {
  std::string_view name;
  std::string_view family;
  std::string_view defaults;
};

constexpr std::string_view kQwen2Vl =
    R"({"vocab_size": 152064, "hidden_size": 8192, "intermediate_size": 29568, "rope_theta": 1e6,
        "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
        "max_position_embeddings": 32768, "rms_norm_eps": 1e-5, "max_window_layers": 80,
        "sliding_window": 4096})";

constexpr std::string_view kLlamaSizes =
    R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
        "num_hidden_layers": 32, "num_attention_heads": 32})";

constexpr std::string_view kQwenSizes =
    R"({"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32})";

constexpr std::array<TextType, 24> kTextTypes{{
    {"cohere2", "cohere2",
     R"({"vocab_size": 256000, "hidden_size": 8192, "intermediate_size": 22528,
         "num_hidden_layers": 40, "num_attention_heads": 64})"},
    {"exaone4", "exaone4",
     R"({"vocab_size": 102400, "hidden_size": 4096, "intermediate_size": 16384,
         "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32})"},
    {"gemma", "gemma",
     R"({"vocab_size": 256000, "hidden_size": 3072, "intermediate_size": 24576,
         "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 16})"},
    {"glm4v_text", "glm4",
     R"({"vocab_size": 151552, "hidden_size": 4096, "intermediate_size": 13696,
         "num_hidden_layers": 40, "num_attention_heads": 32, "rms_norm_eps": 1e-5,
         "max_position_embeddings": 32768, "partial_rotary_factor": 1.0})"},
    {"glm4v_moe_text", "glm4_moe",
     R"({"vocab_size": 151424, "hidden_size": 4096, "num_hidden_layers": 46,
         "num_attention_heads": 96, "max_position_embeddings": 65536,
         "attention_bias": true})"},
    {"gpt_oss", "gpt_oss",
     R"({"vocab_size": 201088, "hidden_size": 2880, "num_hidden_layers": 36,
         "num_attention_heads": 64})"},
    {"granite", "granite", kLlamaSizes},
    {"hyperclovax", "hyperclovax", kLlamaSizes},
    {"lfm2", "lfm2",
     R"({"vocab_size": 65536, "hidden_size": 2560, "intermediate_size": 12288,
         "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8})"},
    {"llama", "llama", kLlamaSizes},
    {"qwen2", "qwen2", kQwenSizes},
    {"qwen3", "qwen3", kQwenSizes},
    {"qwen3_vl_moe_text", "qwen3_moe",
     R"({"vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 5632,
         "num_hidden_layers": 24, "num_attention_heads": 16, "num_key_value_heads": 16,
         "moe_intermediate_size": 1408, "num_experts": 60, "num_experts_per_tok": 4,
         "head_dim": 128, "max_position_embeddings": 128000,
         "rope_theta": 5e5})"},
    {"gemma3_text", "gemma3_text",
     R"({"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216,
         "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4,
         "sliding_window": 4096})"},
    {"gemma4_text", "gemma4_text",
     R"({"vocab_size": 262144, "hidden_size": 2304, "intermediate_size": 9216,
         "num_hidden_layers": 30, "num_attention_heads": 8, "num_key_value_heads": 4,
         "sliding_window": 512})"},
    {"gemma4_unified_text", "gemma4_unified_text",
     R"({"vocab_size": 262144, "hidden_size": 2304, "intermediate_size": 9216,
         "num_hidden_layers": 30, "num_attention_heads": 8, "num_key_value_heads": 4})"},
    {"llama4_text", "llama4_text",
     R"({"vocab_size": 202048, "hidden_size": 5120, "num_hidden_layers": 48,
         "num_attention_heads": 40, "num_key_value_heads": 8})"},
    {"mistral", "mistral",
     R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336,
         "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
         "sliding_window": 4096})"},
    {"ministral3", "ministral3",
     R"({"vocab_size": 131072, "hidden_size": 4096, "intermediate_size": 14336,
         "num_hidden_layers": 34, "num_attention_heads": 32, "num_key_value_heads": 8})"},
    {"qwen2_vl_text", "qwen2", kQwen2Vl},
    {"qwen2_5_vl_text", "qwen2", kQwen2Vl},
    {"qwen3_5_text", "qwen3_5_text",
     R"({"vocab_size": 248320, "hidden_size": 4096, "intermediate_size": 12288,
         "num_hidden_layers": 32, "num_attention_heads": 16, "num_key_value_heads": 4})"},
    {"qwen3_5_moe_text", "qwen3_5_moe_text",
     R"({"vocab_size": 248320, "hidden_size": 2048, "num_hidden_layers": 40,
         "num_attention_heads": 16, "num_key_value_heads": 2})"},
    {"qwen3_vl_text", "qwen3",
     R"({"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016,
         "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
         "max_position_embeddings": 128000, "rope_theta": 5e5})"},
}};

/// The first of "architectures"; null if there is none.
json class_of(const json& document) {
  const auto classes = document.find("architectures");
  const bool some = classes != document.end() && classes->is_array() && !classes->empty();
  return some ? classes->front() : json();
}

const Wrapper* wrapper_of(const json& document) {
  const json name = class_of(document);
  const auto is_named = [&](const Wrapper& wrapper) {
    return name.is_null() ? document.value("model_type", json()) == wrapper.model_type
                          : name == wrapper.architecture;
  };
  const auto* found = std::ranges::find_if(kWrappers, is_named);
  return found == kWrappers.end() ? nullptr : found;
}

/// The model_type, or nothing where it is missing or no string.
std::string model_type_of(const json& document) {
  const json type = document.value("model_type", json());
  return type.is_string() ? type.get<std::string>() : std::string();
}

/// Whether a class that is not known here generates text: classifiers do not. Of families' own
/// classes, which are known, a text_config is a leftover.
bool may_wrap_text(const json& document) {
  const json name = class_of(document);
  if (!name.is_string()) {
    return std::ranges::find(families(), model_type_of(document), &Family::model_type) ==
           families().end();
  }
  const auto text = name.get<std::string>();
  const bool generates =
      text.ends_with("ForConditionalGeneration") || text.ends_with("ForCausalLM");
  return generates &&
         std::ranges::find(families(), text, &Family::architecture) == families().end();
}

/// Whether it is a class of text and something else, unknown here, whose text part is of a family
/// and says its RoPE and its norms, for which such classes (Voxtral's) have defaults of their own.
bool has_known_text(const json& document) {
  const auto text = document.find("text_config");
  if (!may_wrap_text(document) || text == document.end() || !text->is_object() ||
      document.value("is_encoder_decoder", json()) == true || !text->contains("rms_norm_eps") ||
      !(text->contains("rope_theta") || text->contains("rope_parameters"))) {
    return false;
  }
  const std::string type = model_type_of(*text);
  return std::ranges::find(kTextTypes, type, &TextType::name) != kTextTypes.end() ||
         std::ranges::find(families(), type, &Family::model_type) != families().end();
}

/// Of texts the three coordinates that images have are all the position: plain RoPE.
void drop_image_coordinates(json& text) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto rope = text.find(key);
    if (rope == text.end() || !rope->is_object()) {
      continue;
    }
    rope->erase("mrope_section");
    rope->erase("mrope_interleaved");
    for (const char* type : {"type", "rope_type"}) {
      if (rope->value(type, json()) == "mrope") {
        (*rope)[type] = "default";
      }
    }
  }
}

/// Classes of text parts that compute the same whatever some keys say.
void set_constants(json& text, const json& type) {
  if (type == "qwen3_vl_moe_text") {
    text["norm_topk_prob"] = true;
  }
  if (type == "glm4v_text") {
    text["attention_bias"] = true;
    const json heads = text.value("num_attention_heads", json());
    const json width = text.value("hidden_size", json());
    text.erase("head_dim");
    if (heads.is_number_unsigned() && width.is_number_unsigned() && heads != 0U) {
      text["head_dim"] = width.get<std::int64_t>() / heads.get<std::int64_t>();
    }
  }
}

void add_missing(json& text, const json& defaults) {
  for (const auto& [key, value] : defaults.items()) {
    if (!text.contains(key)) {
      text[key] = value;
    }
  }
}

/// The prefix of a text part's tensor names, and the prefix that its family uses.
struct Prefix {
  std::string_view stored;
  std::string_view own;
};

constexpr std::array<Prefix, 4> kPrefixes{{
    {"model.language_model.", "model."},
    {"language_model.model.", "model."},
    {"model.text_model.", "model."},
    {"language_model.lm_head.", "lm_head."},
}};

bool is_true(const json& object, const char* key) {
  return object.value(key, json()) == true;
}

}  // namespace

json text_part(json document) {
  if (!document.is_object()) {
    return document;
  }
  static constexpr Wrapper kOther{{}, {}, {}, false};
  const Wrapper* wrapper = wrapper_of(document);
  if (wrapper == nullptr && has_known_text(document)) {
    wrapper = &kOther;
  }
  if (wrapper == nullptr) {
    return document;
  }
  // Older files have the text part's keys beside those of the whole.
  const bool nested = document.contains("text_config") && document["text_config"].is_object();
  json text = nested ? document["text_config"] : document;
  const json stated = nested ? text.value("model_type", json()) : json();
  std::string type =
      stated.is_string() ? stated.get<std::string>() : std::string(wrapper->text_type);
  const auto* known = std::ranges::find(kTextTypes, type, &TextType::name);
  if (known != kTextTypes.end()) {
    add_missing(text, json_from<json>(known->defaults));
    set_constants(text, type);
    type = known->family;
  }
  text["model_type"] = type;
  text.erase("architectures");
  for (const char* part : {"vision_config", "text_config"}) {
    text.erase(part);
  }
  for (const char* key :
       {"torch_dtype", "dtype", "bos_token_id", "eos_token_id", "quantization_config"}) {
    if (!text.contains(key) && document.contains(key)) {
      text[key] = document[key];
    }
  }
  for (const auto& [key, value] : document.items()) {
    if (nested && (key.starts_with("dms") || key.starts_with("dmc"))) {  // a retrofit of the whole
      text[key] = value;
    }
  }
  // Of an unknown class the text part's own default holds.
  if (wrapper != &kOther || document.contains("tie_word_embeddings")) {
    const bool tied = document.contains("tie_word_embeddings")
                          ? is_true(document, "tie_word_embeddings")
                          : wrapper->tied_embeddings;
    text["tie_word_embeddings"] = tied || is_true(text, "tie_word_embeddings");
  }
  if (wrapper->plain_logits) {
    text["logit_scale"] = 1.0;     // Cohere 2
    text["logits_scaling"] = 1.0;  // Granite
  }
  drop_image_coordinates(text);
  return text;
}

TensorMap text_part(TensorMap tensors) {
  TensorMap named;
  for (auto& [name, tensor] : tensors) {
    const auto* prefix = std::ranges::find_if(
        kPrefixes, [&stored = name](const Prefix& p) { return stored.starts_with(p.stored); });
    named.emplace(prefix == kPrefixes.end()
                      ? name
                      : std::string(prefix->own) + name.substr(prefix->stored.size()),
                  std::move(tensor));
  }
  return named;
}

std::vector<std::string> stored_names(const std::string& name) {
  std::vector<std::string> names{name};
  for (const Prefix& prefix : kPrefixes) {
    if (name.starts_with(prefix.own)) {
      names.push_back(std::string(prefix.stored) + name.substr(prefix.own.size()));
    }
  }
  return names;
}

}  // namespace winnow::model::detail
