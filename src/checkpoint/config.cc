#include "checkpoint/config.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "checkpoint/config_parts.h"

namespace winnow {
namespace {

using detail::Architecture;

// Generous for any model of this kind, small enough that products stay in range.
constexpr int kMaxHidden = 1 << 20;
constexpr int kMaxLayers = 1 << 12;
constexpr int kMaxHeads = 1 << 16;
constexpr int kMaxHeadDim = 1 << 12;
constexpr int kMaxIntermediate = 1 << 24;
constexpr int kMaxVocab = 1 << 26;
constexpr int kMaxPositions = 1 << 30;

struct FamilyInfo {
  Family family;
  const char* model_type;
  const char* architecture;
  int default_positions;  // transformers' max_position_embeddings when the file has none
};

constexpr std::array<FamilyInfo, 4> kFamilies{{
    {Family::llama, "llama", "LlamaForCausalLM", 2048},
    {Family::qwen2, "qwen2", "Qwen2ForCausalLM", 32768},
    {Family::qwen3, "qwen3", "Qwen3ForCausalLM", 32768},
    {Family::mistral, "mistral", "MistralForCausalLM", 131072},
}};

const FamilyInfo& info_of(Family family) {
  return *std::find_if(kFamilies.begin(), kFamilies.end(),
                       [family](const FamilyInfo& info) { return info.family == family; });
}

/// Removes `suffix` from the end of `text` if it is there.
bool strip_suffix(std::string& text, std::string_view suffix) {
  const bool there = text.ends_with(suffix);
  if (there) {
    text.resize(text.size() - suffix.size());
  }
  return there;
}

/// The first entry of "architectures"; empty when the file names none.
std::string first_architecture(const JsonObject& config) {
  const nlohmann::json* list = config.find("architectures");
  if (list == nullptr || (list->is_array() && list->empty())) {
    return "";
  }
  if (!list->is_array() || !list->front().is_string()) {
    config.reject("architectures", "an array of strings");
  }
  return list->front().get<std::string>();
}

/// The two names of an architecture must not contradict each other; a model_type that is none of
/// the families' own may be anything.
void check_model_type(const JsonObject& config, const FamilyInfo& info,
                      const std::string& model_type) {
  for (const FamilyInfo& other : kFamilies) {
    require(other.family == info.family || model_type != other.model_type,
            "{}: model_type {} and architectures {} contradict each other", config.where(),
            in_quotes(model_type), in_quotes(info.architecture));
  }
}

Architecture read_architecture(const JsonObject& config) {
  const std::string class_name = first_architecture(config);
  const std::string model_type = config.text("model_type", "");
  std::string name = class_name.empty() ? model_type : class_name;
  Architecture result;
  result.dms = strip_suffix(name, class_name.empty() ? "_dms" : "DMS");
  result.dmc = strip_suffix(name, class_name.empty() ? "_dmc" : "DMC");
  for (const FamilyInfo& info : kFamilies) {
    if (name == (class_name.empty() ? info.model_type : info.architecture)) {
      result.family = info.family;
      check_model_type(config, info, model_type);
      return result;
    }
  }
  fail(
      "{}: architecture {} is not supported; winnow reads LlamaForCausalLM, Qwen2ForCausalLM, "
      "Qwen3ForCausalLM and MistralForCausalLM, plain or ending in DMS or DMC",
      config.where(), in_quotes(class_name.empty() ? model_type : class_name));
}

void read_sizes(const JsonObject& config, ModelConfig& model) {
  model.hidden = config.integer("hidden_size", 1, kMaxHidden);
  model.layers = config.integer("num_hidden_layers", 1, kMaxLayers);
  model.heads = config.integer("num_attention_heads", 1, kMaxHeads);
  model.kv_heads = config.integer("num_key_value_heads", 1, model.heads, model.heads);
  model.intermediate = config.integer("intermediate_size", 1, kMaxIntermediate);
  model.vocab = config.integer("vocab_size", 1, kMaxVocab);
  model.max_positions = config.integer("max_position_embeddings", 1, kMaxPositions,
                                       info_of(model.family).default_positions);
  require(model.heads % model.kv_heads == 0,
          "{}: expected num_attention_heads to be a multiple of num_key_value_heads, got {} and {}",
          config.where(), model.heads, model.kv_heads);
}

void read_head_dim(const JsonObject& config, ModelConfig& model) {
  if (config.has("head_dim")) {
    model.head_dim = config.integer("head_dim", 2, kMaxHeadDim);
  } else if (model.family == Family::qwen3) {
    model.head_dim = 128;  // transformers' default for this family, whatever the hidden size
  } else {
    require(model.hidden % model.heads == 0,
            "{}: without head_dim, expected hidden_size to be a multiple of num_attention_heads, "
            "got {} and {}",
            config.where(), model.hidden, model.heads);
    model.head_dim = model.hidden / model.heads;
  }
  // RoPE turns channels in pairs.
  require(model.head_dim % 2 == 0 && model.head_dim >= 2 && model.head_dim <= kMaxHeadDim,
          "{}: expected an even head_dim from 2 to {}, got {}", config.where(), kMaxHeadDim,
          model.head_dim);
}

DType read_dtype(const JsonObject& config) {
  const char* key = config.has("dtype") ? "dtype" : "torch_dtype";
  const std::string name = config.text(key, "bfloat16");
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    if (name == detail::torch_dtype_name(type)) {
      return type;
    }
  }
  config.reject(key, "\"float32\", \"float16\" or \"bfloat16\"");
}

/// How many tokens the narrowest layer attends to, however the family says so; nullopt when all
/// layers see everything.
std::optional<int> sliding_window(const JsonObject& config, const ModelConfig& model) {
  if (model.family == Family::llama || !config.has("sliding_window")) {
    return std::nullopt;
  }
  const int window = config.integer("sliding_window", 1, kMaxPositions);
  const nlohmann::json* types = config.find("layer_types");
  const bool used =
      types != nullptr
          ? types->is_array() && std::ranges::find(*types, "sliding_attention") != types->end()
      : model.family == Family::mistral
          ? true
          : config.boolean("use_sliding_window", false) &&
                config.integer("max_window_layers", 0, kMaxPositions, 0) < model.layers;
  return used ? std::optional(window) : std::nullopt;
}

void check_layer_types(const JsonObject& config) {
  const nlohmann::json* types = config.find("layer_types");
  if (types == nullptr) {
    return;
  }
  if (!types->is_array()) {
    config.reject("layer_types", "an array");
  }
  for (const auto& type : *types) {
    require(type == "full_attention" || type == "sliding_attention",
            "{}: layer_types: {} is not supported, expected \"full_attention\"", config.where(),
            described(type));
  }
}

/// Everything that would change the computation and that winnow does not do.
void reject_unsupported(const JsonObject& config) {
  const std::string activation = config.text("hidden_act", "silu");
  require(activation == "silu" || activation == "swish",
          "{}: hidden_act {} is not supported, expected \"silu\"", config.where(),
          in_quotes(activation));
  require(!config.has("quantization_config"),
          "{}: quantization_config: quantised weights are not supported, expected fp32, fp16 or "
          "bf16",
          config.where());
  check_layer_types(config);
}

/// The ids under `key`, one number or a list of them. Ids outside the vocabulary can never come up,
/// so small models keep those of their large relatives, and -1 stands for none.
std::vector<int> read_token_ids(const JsonObject& object, const char* key, int vocab) {
  const nlohmann::json* value = object.find(key);
  if (value == nullptr) {
    return {};
  }
  std::vector<int> tokens;
  for (const auto& token : value->is_array() ? *value : nlohmann::json::array({*value})) {
    require(token.is_number_integer(), "{}: {}: expected token ids, got {}", object.where(), key,
            described(token));
    if (token >= 0 && token < vocab) {
      tokens.push_back(token.get<int>());
    }
  }
  return tokens;
}

std::optional<int> read_bos(const JsonObject& object, int vocab) {
  const std::vector<int> tokens = read_token_ids(object, "bos_token_id", vocab);
  return tokens.empty() ? std::nullopt : std::optional(tokens.front());
}

void read_tokens(const JsonObject& config, const JsonObject* generation, ModelConfig& model) {
  model.bos_token = read_bos(config, model.vocab);
  model.eos_tokens = read_token_ids(config, "eos_token_id", model.vocab);
  if (generation == nullptr) {
    return;
  }
  if (auto eos = read_token_ids(*generation, "eos_token_id", model.vocab); !eos.empty()) {
    model.eos_tokens = std::move(eos);
  }
  if (!model.bos_token) {
    model.bos_token = read_bos(*generation, model.vocab);
  }
}

/// A file that may be absent, parsed.
struct OptionalFile {
  OptionalFile(const std::optional<std::string>& text, const std::filesystem::path& path) {
    if (text) {
      document = parse_json(*text, path.string());
      object.emplace(document, path.string());
    }
  }
  OptionalFile(const OptionalFile&) = delete;  // `object` points into `document`
  OptionalFile& operator=(const OptionalFile&) = delete;
  [[nodiscard]] const JsonObject* get() const { return object ? &*object : nullptr; }

  nlohmann::json document;
  std::optional<JsonObject> object;
};

std::optional<std::string> read_if_there(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored) ? std::optional(read_text_file(path))
                                                : std::nullopt;
}

}  // namespace

std::string detail::architecture_name(Family family) {
  return info_of(family).architecture;
}

std::string detail::model_type_name(Family family) {
  return info_of(family).model_type;
}

std::string detail::torch_dtype_name(DType type) {
  switch (type) {
    case DType::f32:
      return "float32";
    case DType::f16:
      return "float16";
    case DType::bf16:
      return "bfloat16";
    default:
      fail("weights of type {} cannot be saved, expected fp32, fp16 or bf16", dtype_name(type));
  }
}

ModelConfig parse_config(const ConfigTexts& texts) {
  const std::string where = (texts.directory / "config.json").string();
  const nlohmann::json document = parse_json(texts.config, where);
  const JsonObject config(document, where);
  const OptionalFile generation(texts.generation_config,
                                texts.directory / "generation_config.json");
  const OptionalFile metadata(texts.dms_metadata, texts.directory / "dms_metadata.json");

  const Architecture architecture = read_architecture(config);
  ModelConfig model;
  model.family = architecture.family;
  read_sizes(config, model);
  read_head_dim(config, model);
  reject_unsupported(config);
  if (const auto window = sliding_window(config, model)) {
    // Up to there a window hides nothing; longer sequences are refused.
    model.max_positions = std::min(model.max_positions, *window);
  }
  model.norm_eps = static_cast<float>(config.number("rms_norm_eps", 0.0, 1.0, 1e-6));
  model.rope = detail::read_rope(config, model.max_positions);
  model.tied_embeddings = config.boolean("tie_word_embeddings", false);
  const bool reads_attention_bias = model.family == Family::llama || model.family == Family::qwen3;
  model.output_bias = reads_attention_bias && config.boolean("attention_bias", false);
  model.qkv_bias = model.family == Family::qwen2 || model.output_bias;
  model.mlp_bias = model.family == Family::llama && config.boolean("mlp_bias", false);
  model.qk_norm = model.family == Family::qwen3;
  model.dtype = read_dtype(config);
  read_tokens(config, generation.get(), model);
  model.dms = detail::read_dms(config, metadata.get(), architecture, model.head_dim);
  model.dmc = detail::read_dmc(config, architecture);
  require(!(model.dms && model.dmc),
          "{}: both DMS and DMC keys are present, expected at most one of the two", where);
  return model;
}

ModelConfig read_config(const std::filesystem::path& directory) {
  std::error_code ignored;
  require(std::filesystem::is_directory(directory, ignored), "{}: not a model directory",
          directory.string());
  ConfigTexts texts;
  texts.directory = directory;
  texts.config = read_text_file(directory / "config.json");
  texts.generation_config = read_if_there(directory / "generation_config.json");
  texts.dms_metadata = read_if_there(directory / "dms_metadata.json");
  return parse_config(texts);
}

}  // namespace winnow
