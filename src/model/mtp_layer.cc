// Opens the MTP layers of checkpoints (DraftHeadSpec).
#include <algorithm>
#include <array>
#include <string>

#include "base/error.h"
#include "base/note.h"
#include "checkpoint/json.h"
#include "checkpoint/model_path.h"
#include "checkpoint/weight_files.h"
#include "model/config_fields.h"
#include "model/draft_head.h"
#include "model/text_part.h"

namespace winnow::model {
namespace {

namespace fs = std::filesystem;

// How files of some families name an MTP layer, and where it differs.
struct Layout {
  std::array<std::string_view, 3> families;
  std::string_view prefix;  // of all its names; "{}" is the number of the model's layers
  std::string_view fusion;
  std::string_view embedding_norm;
  std::string_view stream_norm;
  std::string_view layer;
  std::string_view norm;      // "": it has the model's
  bool normed = true;         // the model's stream has had the final norm
  bool stream_first = false;  // DraftHeadSpec::stream_first
  bool like_first = false;    // the layer is like the model's first one, not its last
};

constexpr std::array<Layout, 4> kLayouts{{
    {.families = {"qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"},
     .prefix = "mtp.",
     .fusion = "fc.",
     .embedding_norm = "pre_fc_norm_embedding.",
     .stream_norm = "pre_fc_norm_hidden.",
     .layer = "layers.0.",
     .norm = "norm."},
    {.families = {"deepseek_v3", "glm4_moe", "glm4_moe_lite"},
     .prefix = "model.layers.{}.",
     .fusion = "eh_proj.",
     .embedding_norm = "enorm.",
     .stream_norm = "hnorm.",
     .layer = "",
     .norm = "shared_head.norm."},
    {.families = {"qwen2"},  // MiMo
     .prefix = "model.mtp_layers.0.",
     .fusion = "input_proj.",
     .embedding_norm = "token_layernorm.",
     .stream_norm = "hidden_layernorm.",
     .layer = "",
     .norm = "final_layernorm.",
     .normed = false,
     .stream_first = true},
    {.families = {"ernie4_5_moe"},
     .prefix = "model.mtp_",
     .fusion = "linear_proj.0.",
     .embedding_norm = "emb_norm.0.",
     .stream_norm = "hidden_norm.0.",
     .layer = "block.0.",
     .norm = "",
     .normed = false,
     .like_first = true},
}};

const Layout& layout_of(const fs::path& directory, const ModelSpec& model) {
  const auto* found = std::ranges::find_if(kLayouts, [&](const Layout& layout) {
    return std::ranges::find(layout.families, model.family) != layout.families.end();
  });
  require(found != kLayouts.end(), "{}: models of type {} have no MTP layers that winnow knows",
          directory.string(), in_quotes(model.family));
  return *found;
}

TensorNames names_of(const Layout& layout, const ModelSpec& model) {
  TensorNames names = model.names;
  names.within = layout.prefix;
  if (const std::size_t number = names.within.find("{}"); number != std::string::npos) {
    names.within.replace(number, 2, std::to_string(model.layer_count()));
  }
  const auto stored = [&](std::string_view name) { return names.within + std::string(name); };
  std::vector<std::pair<std::string, std::string>> renamed{
      {"fc.", stored(layout.fusion)},
      {"embedding_norm.", stored(layout.embedding_norm)},
      {"input_norm.", stored(layout.stream_norm)},
      {"model.embed_tokens.", stored("embed_tokens.")},  // copies of the model's, like the next
      {"lm_head.", stored("shared_head.head.")},
  };
  if (!layout.norm.empty()) {
    renamed.emplace_back("model.norm.", stored(layout.norm));
  }
  renamed.emplace_back("model.layers.0.", stored(layout.layer));
  names.renamed.insert(names.renamed.begin(), renamed.begin(), renamed.end());
  return names;
}

// The attention layer of the model that the MTP layer is like.
LayerSpec layer_of(const Layout& layout, const ModelSpec& model) {
  const auto attends = [](const LayerSpec& layer) { return layer.attention() != nullptr; };
  return layout.like_first ? *std::find_if(model.layers.begin(), model.layers.end(), attends)
                           : *std::find_if(model.layers.rbegin(), model.layers.rend(), attends);
}

void require_tensors(const fs::path& directory, const std::string& prefix) {
  const TensorMap tensors = detail::text_part(WeightFiles(directory).tensors());
  require(std::ranges::any_of(tensors,
                              [&](const auto& tensor) { return tensor.first.starts_with(prefix); }),
          "{}: the files have no MTP layer: no tensor's name begins with \"{}\"",
          directory.string(), prefix);
}

void note_others(const fs::path& directory, const ModelSpec& model) {
  const std::string where = (directory / "config.json").string();
  const nlohmann::json document = parse_json(model.config.text, where);
  const JsonObject config(document, where);
  for (const char* key : {"num_nextn_predict_layers", "mtp_num_hidden_layers"}) {
    const int layers = config.integer(key, 0, detail::kMaxLayers, 1);
    if (layers > 1) {
      note(fmt::format("{}: {}: of {} MTP layers the first drafts all tokens", where, key, layers));
    }
  }
}

}  // namespace

Checkpoint open_mtp_layer(const fs::path& directory, const ModelSpec& model) {
  require(!is_gguf_model(directory), "{}: MTP layers of GGUF files are not read",
          directory.string());
  const Layout& layout = layout_of(directory, model);
  ModelSpec spec = model;
  spec.names = names_of(layout, model);
  require_tensors(directory, spec.names.within);
  note_others(directory, model);
  spec.layers = {layer_of(layout, model)};
  spec.tied_embeddings = false;
  spec.dms.reset();
  spec.dmc.reset();
  spec.draft_head = {.kind = DraftHeadSpec::Kind::mtp,
                     .after = {model.layer_count() + (layout.normed ? 1 : 0)},
                     .target_hidden = model.hidden,
                     .vocab = model.vocab,
                     .own_output = false,
                     .own_norm = !layout.norm.empty(),
                     .norms_inputs = true,
                     .norms_output = true,
                     .stream_first = layout.stream_first};
  return Checkpoint::open(directory, std::move(spec));
}

}  // namespace winnow::model
