#include "model/draft_head.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string>

#include "base/error.h"
#include "checkpoint/json.h"
#include "checkpoint/json_text.h"
#include "checkpoint/weight_files.h"
#include "model/config_fields.h"

namespace winnow::model {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSpeculators = "speculators_model_type";
constexpr const char* kLayer = "transformer_layer_config";  // in the format of "speculators"
constexpr const char* kDraftVocab = "draft_vocab_size";
constexpr const char* kTaken = "eagle_aux_hidden_state_layer_ids";
constexpr const char* kOwnConfig = "eagle_config";  // where SGLang expects it
constexpr const char* kOffsets = "d2t";

bool names_eagle(const nlohmann::json& config) {
  const auto architectures = config.find("architectures");
  if (architectures == config.end() || !architectures->is_array()) {
    return false;
  }
  return std::ranges::any_of(*architectures, [](const nlohmann::json& name) {
    return name.is_string() &&
           (name.get_ref<const std::string&>().find("Eagle3") != std::string::npos);
  });
}

// The config.json of a decoder of one layer: what `config` says of the head's layer.
std::string layer_config(const JsonObject& config) {
  nlohmann::json layer = config.has(kLayer) ? config.object(kLayer).document() : config.document();
  layer.erase("architectures");
  layer.emplace("model_type", "llama");
  const JsonObject object(layer, config.where());
  const std::string type = object.text("model_type", "");
  require(type == "llama" || type == "qwen3",
          "{}: model_type {}: EAGLE-3 heads have a layer of llama or qwen3 here", config.where(),
          in_quotes(type));
  (void)object.integer("num_hidden_layers", 1, 1, 1);
  layer["num_hidden_layers"] = 1;
  layer["tie_word_embeddings"] = false;  // it has an output matrix for the tokens that it drafts
  return json_text(layer);
}

// After how many of the target's layers the head takes its stream. SGLang's key counts the layers
// before the last one that is taken, speculators' all of them; without a key both take these three.
std::vector<int> layers_taken(const JsonObject& config, const ModelSpec& target) {
  const int layers = target.layer_count();
  const bool nested = config.has(kOwnConfig) && config.object(kOwnConfig).has(kTaken);
  const JsonObject object = nested ? config.object(kOwnConfig) : config;
  std::vector<int> after{2, layers / 2, layers - 3};
  if (const nlohmann::json* ids = object.find(kTaken)) {
    after.clear();
    for (const nlohmann::json& id : ids->is_array() ? *ids : nlohmann::json::array()) {
      if (!id.is_number_integer() || id < 0 || id > detail::kMaxLayers) {
        object.reject(kTaken, "numbers of layers");
      }
      after.push_back(id.get<int>() + (nested ? 1 : 0));
    }
    if (after.empty()) {
      object.reject(kTaken, "numbers of layers");
    }
  }
  const auto [least, most] = std::ranges::minmax(after);
  require(
      least >= 0 && most < layers,
      "{}: the head takes the model's states after {} layers; the model has {}, and gives those "
      "after 0 to {}",
      config.where(), fmt::join(after, ", "), layers, layers - 1);
  return after;
}

void require_supported_keys(const JsonObject& config) {
  for (const char* key : {"fc_norm", "use_aux_norm", "bias"}) {
    require(!config.boolean(key, false), "{}: {}: heads with it do not run here", config.where(),
            key);
  }
}

DraftHeadSpec describe(const JsonObject& config, const ModelSpec& layer, const ModelSpec& target) {
  require_supported_keys(config);
  DraftHeadSpec head;
  head.after = layers_taken(config, target);
  head.target_hidden = config.integer("target_hidden_size", 1, detail::kMaxHidden, layer.hidden);
  head.vocab = config.integer(kDraftVocab, 1, layer.vocab, layer.vocab);
  head.norms_residual = config.boolean("norm_before_residual", false);
  head.norms_output = config.boolean("norm_output", false);
  const bool nested = config.has(kOwnConfig) && config.object(kOwnConfig).has("norm_before_fc");
  head.norms_inputs =
      (nested ? config.object(kOwnConfig) : config).boolean("norm_before_fc", false);
  require(head.target_hidden == target.hidden,
          "{}: the head is for a model with hidden_size {}, the model's is {}", config.where(),
          head.target_hidden, target.hidden);
  require(layer.vocab == target.vocab,
          "{}: the head is for a vocabulary of {} tokens, the model's has {}", config.where(),
          layer.vocab, target.vocab);
  return head;
}

// Names in the published files; those of "speculators" are what WeightFiles takes for a base
// model's.
void name_tensors(const fs::path& directory, ModelSpec& spec) {
  const WeightFiles files(directory);
  spec.names.attention_norm = "hidden_norm";
  if (files.find("midlayer.hidden_norm.weight")) {
    spec.names.renamed = {{"model.layers.0.", "midlayer."}};
  }
  spec.draft_head->own_embedding = files.find("model.embed_tokens.weight").has_value();
  require(spec.draft_head->own_embedding || spec.hidden == spec.draft_head->target_hidden,
          "{}: tensor \"embed_tokens.weight\" is missing, and the model's embeddings have {} "
          "channels, the head's {}",
          directory.string(), spec.draft_head->target_hidden, spec.hidden);
  require(!files.find("fc.bias"), "{}: tensor \"fc.bias\": heads with it do not run here",
          files.locate("fc.bias"));
}

// The tokens that the head drafts. Files have offsets: token i of the head is i + d2t[i].
std::vector<std::int32_t> read_tokens(const Checkpoint& head) {
  const ModelSpec& spec = head.spec();
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(spec.head_rows()));
  std::iota(tokens.begin(), tokens.end(), 0);
  if (!head.has(kOffsets)) {
    require(spec.head_rows() == spec.vocab,
            "{}: tensor \"{}\" is missing: which of the {} tokens the head's {} are",
            head.directory().string(), kOffsets, spec.vocab, spec.head_rows());
    return tokens;
  }
  const TensorView& offsets = head.tensor(kOffsets);
  const bool wide = offsets.dtype == DType::i64;
  require((wide || offsets.dtype == DType::i32) && offsets.shape == Shape{spec.head_rows()},
          "{}: tensor \"{}\" has type {} and shape [{}], expected integers, [{}]",
          head.directory().string(), kOffsets, dtype_name(offsets.dtype),
          fmt::join(offsets.shape, ", "), spec.head_rows());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::int64_t offset =
        wide ? offsets.as<std::int64_t>()[i] : offsets.as<std::int32_t>()[i];
    const std::int64_t room = spec.vocab - static_cast<std::int64_t>(i);
    require(offset >= -static_cast<std::int64_t>(i) && offset < room,
            "{}: tensor \"{}\" names a token outside the vocabulary of {} at {}: offset {}",
            head.directory().string(), kOffsets, spec.vocab, i, offset);
    tokens[i] += static_cast<std::int32_t>(offset);
  }
  return tokens;
}

}  // namespace

bool is_draft_head(const fs::path& directory) {
  const fs::path path = directory / "config.json";
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    return false;
  }
  const nlohmann::json config = parse_json(read_text_file(path), path.string());
  return config.is_object() &&
         (names_eagle(config) || config.value(kSpeculators, nlohmann::json()) == "eagle3");
}

Checkpoint open_draft_head(const fs::path& directory, const ModelSpec& target) {
  const std::string where = (directory / "config.json").string();
  const nlohmann::json document = parse_json(read_text_file(directory / "config.json"), where);
  const JsonObject config(document, where);
  ModelSpec spec = parse_spec(ConfigTexts{.directory = directory,
                                          .config = layer_config(config),
                                          .generation_config = {},
                                          .dms_metadata = {}});
  spec.draft_head = describe(config, spec, target);
  spec.max_positions = target.max_positions;  // RoPE sees distances alone
  name_tensors(directory, spec);
  return Checkpoint::open(directory, std::move(spec));
}

Weights load_draft_head(const Checkpoint& head, const Weights& target,
                        std::optional<ops::WeightFormat> format, bool keep_packed) {
  const DraftHeadSpec& what = *head.spec().draft_head;
  Weights weights = load_weights(head, format, keep_packed);
  if (!what.own_embedding) {
    weights.embedding = target.embedding;
  }
  if (!what.own_norm) {
    weights.norm = target.norm;
    weights.norm_bias = target.norm_bias;
  }
  if (what.own_output) {
    weights.draft_head.tokens = read_tokens(head);
  } else {
    weights.head = target.head;
    weights.head_bias = target.head_bias;
  }
  return weights;
}

}  // namespace winnow::model
