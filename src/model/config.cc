#include "model/config.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>

#include "base/error.h"
#include "checkpoint/gguf/gguf_file.h"
#include "checkpoint/json_text.h"
#include "checkpoint/model_path.h"
#include "model/config_fields.h"
#include "model/families/families.h"
#include "model/gguf_model.h"
#include "model/supported.h"
#include "model/text_part.h"

namespace winnow::model {
namespace {

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

/// Throws Error if the two names of an architecture contradict each other. A model_type that
/// belongs to no family is ignored.
void check_model_type(const JsonObject& config, const Family& family,
                      const std::string& model_type) {
  for (const Family& other : families()) {
    require(other.model_type == family.model_type || model_type != other.model_type,
            "{}: model_type {} and architectures {} contradict each other", config.where(),
            in_quotes(model_type), in_quotes(family.architecture));
  }
}

/// Whether `name` means the class of a family. Early LLaMA converters wrote other cases, and models
/// saved without a head have the name of the base model.
bool is_class_of(const Family& family, std::string name) {
  const auto lower = [](std::string text) {
    std::ranges::transform(text, text.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return text;
  };
  name = lower(std::move(name));
  return name == lower(std::string(family.architecture)) ||
         name == std::string(family.model_type) + "model";
}

const Family& read_family(const JsonObject& config, detail::NamedRetrofit& named) {
  const std::string class_name = first_architecture(config);
  const std::string model_type = config.text("model_type", "");
  std::string name = class_name.empty() ? model_type : class_name;
  named.dms = strip_suffix(name, class_name.empty() ? "_dms" : "DMS");
  named.dmc = strip_suffix(name, class_name.empty() ? "_dmc" : "DMC");
  if (model_type == "exaone" && name == "LlamaForCausalLM") {
    name = "ExaoneForCausalLM";  // transformers computes it with Llama's class
  }
  if (name == "MiMoForCausalLM") {
    name = "Qwen2ForCausalLM";  // the same with MTP layers beside it
  }
  for (const Family& family : families()) {
    if (class_name.empty() ? name == family.model_type : is_class_of(family, name)) {
      check_model_type(config, family, model_type);
      return family;
    }
  }
  require(name.find("Eagle3") == std::string::npos,
          "{}: architecture {} drafts for another model: give it to --draft-model", config.where(),
          in_quotes(class_name));
  fail("{}: architecture {} is not supported; winnow inspect --architectures lists those that are",
       config.where(), in_quotes(class_name.empty() ? model_type : class_name));
}

/// The type of a torch name, with or without "torch.". Double precision becomes fp32; "auto" gives
/// nullopt.
std::optional<DType> dtype_of(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, DType>, 8> kTypes{{{"float32", DType::f32},
                                                                      {"float", DType::f32},
                                                                      {"float64", DType::f32},
                                                                      {"double", DType::f32},
                                                                      {"float16", DType::f16},
                                                                      {"half", DType::f16},
                                                                      {"bfloat16", DType::bf16},
                                                                      {"auto", DType::bf16}}};
  constexpr std::string_view kPrefix = "torch.";
  name.remove_prefix(name.starts_with(kPrefix) ? kPrefix.size() : 0);
  const auto* found =
      std::ranges::find_if(kTypes, [&](const auto& type) { return type.first == name; });
  return found == kTypes.end() ? std::nullopt : std::optional(found->second);
}

DType read_dtype(const JsonObject& config) {
  const char* key = config.has("dtype") ? "dtype" : "torch_dtype";
  const std::optional<DType> type = dtype_of(config.text(key, "bfloat16"));
  if (!type) {
    config.reject(key, "\"float32\", \"float16\" or \"bfloat16\"");
  }
  return *type;
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

void read_tokens(const JsonObject& config, const JsonObject* generation, ModelSpec& spec) {
  spec.bos_token = read_bos(config, spec.vocab);
  spec.eos_tokens = read_token_ids(config, "eos_token_id", spec.vocab);
  if (generation == nullptr) {
    return;
  }
  if (auto eos = read_token_ids(*generation, "eos_token_id", spec.vocab); !eos.empty()) {
    spec.eos_tokens = std::move(eos);
  }
  if (!spec.bos_token) {
    spec.bos_token = read_bos(*generation, spec.vocab);
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

std::vector<std::string_view> known_architectures() {
  std::vector<std::string_view> names;
  std::ranges::transform(families(), std::back_inserter(names), &Family::architecture);
  return names;
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

ModelSpec parse_spec(const ConfigTexts& texts) {
  const std::string where = (texts.directory / "config.json").string();
  const nlohmann::json whole = parse_json(texts.config, where);
  nlohmann::json document = detail::text_part(whole);
  if (texts.rope.context && document.is_object()) {
    document[detail::kContextKey] = *texts.rope.context;
  }
  if (texts.rope.yarn && document.is_object()) {
    document[detail::kYarnKey] = *texts.rope.yarn;
  }
  const JsonObject config(document, where);
  const OptionalFile generation(texts.generation_config,
                                texts.directory / "generation_config.json");
  const OptionalFile metadata(texts.dms_metadata, texts.directory / "dms_metadata.json");

  detail::NamedRetrofit named;
  const Family& family = read_family(config, named);
  ModelSpec spec = family.describe(config);
  spec.family = family.model_type;
  spec.config.text = document == whole ? texts.config : json_text(document);
  spec.dtype = read_dtype(config);
  read_tokens(config, generation.get(), spec);
  require_supported(spec, where);
  spec.dms = detail::read_dms(config, metadata.get(), named, spec.attention().head_dim);
  spec.dmc = detail::read_dmc(config, named);
  require_supported_decisions(spec, where);
  require(!(spec.dms && spec.dmc),
          "{}: both DMS and DMC keys are present, expected at most one of the two", where);
  return spec;
}

ModelSpec parse_spec(const std::string& config) {
  return parse_spec(
      ConfigTexts{.directory = {}, .config = config, .generation_config = {}, .dms_metadata = {}});
}

ModelSpec read_spec(const std::filesystem::path& directory, const RopeOptions& rope) {
  if (is_gguf_model(directory)) {
    const gguf::File file(directory);
    ConfigTexts texts;
    texts.directory = directory;
    texts.rope = rope;
    texts.config = config_of_gguf(file);
    return parse_spec(texts);
  }
  require(std::filesystem::exists(directory / "config.json"), "{}: no model: it has no config.json",
          directory.string());
  ConfigTexts texts;
  texts.directory = directory;
  texts.rope = rope;
  texts.config = read_text_file(directory / "config.json");
  texts.generation_config = read_if_there(directory / "generation_config.json");
  texts.dms_metadata = read_if_there(directory / "dms_metadata.json");
  return parse_spec(texts);
}

}  // namespace winnow::model
