// The conventions of the DMS and DMC checkpoints in the wild.
//
//                        NVIDIA (config.json)          shisa-ai (dms_metadata.json)
//   window               dms_window_size, 512          window_size, 256
//   scale, offset        dms_alpha_scale 100,          alpha_scale 100, alpha_offset 5
//                        dms_initial_alpha_offset 5
//   decision from        dms_separate_alpha: adapter   borrowed neuron
//                        if true, absent: borrowed
//   decision_shift       1                             0
//   channel              last                          last
//   cleared after RoPE   yes                           no
//
// Sources: NVIDIA Model-Optimizer, experimental/dms (Qwen3ConfigDMS, prepare_attention_input), and
// the code beside nvidia/Qwen3-8B-DMS-8x, which has no dms_separate_alpha and borrows; shisa-ai's
// FastDMS (load_dms_metadata, extract_dms_eviction_decisions).
#include <algorithm>

#include "base/error.h"
#include "model/config_fields.h"

namespace winnow::model::detail {
namespace {

constexpr int kMaxWindow = kMaxPositions;
constexpr double kMaxLogit = 1e6;
constexpr double kMaxRatio = 1e6;
constexpr int kMaxPooled = 1 << 15;

DmsConfig nvidia_convention() {
  DmsConfig dms;
  dms.window = 512;
  dms.source = DmsConfig::Source::borrowed;
  dms.shift = 1;
  dms.rezero_after_rope = true;
  return dms;
}

DmsConfig shisa_convention() {
  DmsConfig dms;
  dms.window = 256;
  dms.source = DmsConfig::Source::borrowed;
  dms.shift = 0;
  dms.rezero_after_rope = false;
  return dms;
}

/// The convention that gives values of missing keys. dms_metadata.json is shisa-ai's, but an
/// adapter or an architecture named ...DMS exists only in NVIDIA's layout: there the metadata file
/// was added to NVIDIA's checkpoint (to set its numbers), and the weights keep their meaning.
DmsConfig convention_of_origin(const JsonObject& config, bool has_metadata, bool named_dms) {
  const bool nvidia = named_dms || config.boolean("dms_separate_alpha", false);
  return has_metadata && !nvidia ? shisa_convention() : nvidia_convention();
}

/// Whether config.json has any of the keys of a retrofitted model.
bool configures_dms(const JsonObject& config) {
  return std::ranges::any_of(
      std::initializer_list<const char*>{
          "dms_window_size", "dms_alpha_scale", "dms_initial_alpha_offset", "dms_separate_alpha",
          "dms_alpha_per", "dms_disable_eviction", "dms_decision_shift", "dms_borrowed_channel",
          "dms_rezero_after_rope", "dms_cr", "dms_tau"},
      [&config](const char* key) { return config.has(key); });
}

bool read_per_layer(const JsonObject& config, const char* key) {
  const std::string per = config.text(key, "head");
  if (per != "head" && per != "layer") {
    config.reject(key, "\"head\" or \"layer\"");
  }
  return per == "layer";
}

void apply_config(const JsonObject& config, int head_dim, DmsConfig& dms) {
  dms.window = config.integer("dms_window_size", 0, kMaxWindow, dms.window);
  dms.scale =
      static_cast<float>(config.number("dms_alpha_scale", -kMaxLogit, kMaxLogit, dms.scale));
  dms.offset = static_cast<float>(
      config.number("dms_initial_alpha_offset", -kMaxLogit, kMaxLogit, dms.offset));
  dms.source = config.boolean("dms_separate_alpha", false) ? DmsConfig::Source::adapter
                                                           : DmsConfig::Source::borrowed;
  dms.per_layer = read_per_layer(config, "dms_alpha_per");
  dms.evict = !config.boolean("dms_disable_eviction", false);
  dms.target_cr = config.number("dms_cr", 0.0, kMaxRatio, dms.target_cr);
  dms.shift = config.integer("dms_decision_shift", 0, kMaxWindow, dms.shift);
  dms.channel = config.integer("dms_borrowed_channel", -1, head_dim - 1, dms.channel);
  dms.rezero_after_rope = config.boolean("dms_rezero_after_rope", dms.rezero_after_rope);
}

/// The first of `keys` that `object` has; the last one when it has none.
std::string first_of(const JsonObject& object, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (object.has(key)) {
      return key;
    }
  }
  return *(keys.end() - 1);
}

/// The keys of dms_metadata.json, with the other spellings shisa-ai's own reader accepts.
void apply_metadata(const JsonObject& file, int head_dim, DmsConfig& dms) {
  const JsonObject data = file.has("config") ? file.object("config") : file;
  for (const JsonObject& level : {file, data}) {
    // Newer metadata of the same authors can point to a probe in a file of its own.
    require(!level.has("sidecar"), "{}: a decision probe in a file of its own is not supported",
            level.where());
  }
  dms.window =
      data.integer(first_of(data, {"window_size", "dms_window_size"}), 0, kMaxWindow, dms.window);
  dms.scale = static_cast<float>(data.number(first_of(data, {"alpha_scale", "dms_alpha_scale"}),
                                             -kMaxLogit, kMaxLogit, dms.scale));
  dms.offset = static_cast<float>(
      data.number(first_of(data, {"alpha_offset", "dms_alpha_offset", "dms_initial_alpha_offset"}),
                  -kMaxLogit, kMaxLogit, dms.offset));
  dms.target_cr =
      data.number(first_of(data, {"target_cr", "dms_cr"}), 0.0, kMaxRatio, dms.target_cr);
  dms.shift = data.integer(first_of(data, {"decision_shift", "dms_decision_shift"}), 0, kMaxWindow,
                           dms.shift);
  dms.channel = data.integer(first_of(data, {"borrowed_channel", "dms_borrowed_channel"}), -1,
                             head_dim - 1, dms.channel);
  dms.rezero_after_rope = data.boolean(
      first_of(data, {"rezero_after_rope", "dms_rezero_after_rope"}), dms.rezero_after_rope);
}

}  // namespace

std::optional<DmsConfig> read_dms(const JsonObject& config, const JsonObject* metadata,
                                  const NamedRetrofit& named, int head_dim) {
  if (metadata == nullptr && !named.dms && !configures_dms(config)) {
    return std::nullopt;
  }
  DmsConfig dms = convention_of_origin(config, metadata != nullptr, named.dms);
  apply_config(config, head_dim, dms);
  if (metadata != nullptr) {
    apply_metadata(*metadata, head_dim, dms);
  }
  require(
      dms.shift <= dms.window + 1,
      "{}: dms_decision_shift: expected an integer from 0 to {}, as a key leaves a window of {} "
      "then, got {}",
      config.where(), dms.window + 1, dms.window, dms.shift);
  return dms;
}

std::optional<DmcConfig> read_dmc(const JsonObject& config, const NamedRetrofit& named) {
  if (!named.dmc && !config.has("dmc_alpha_offset")) {
    return std::nullopt;
  }
  DmcConfig dmc;
  dmc.offset =
      static_cast<float>(config.number("dmc_alpha_offset", -kMaxLogit, kMaxLogit, dmc.offset));
  dmc.target_cr = config.number("dmc_cr", 0.0, kMaxRatio, dmc.target_cr);
  dmc.per_layer = read_per_layer(config, "dmc_alpha_per");
  dmc.pooled =
      static_cast<std::uint16_t>(config.integer("dmc_fixed_pooling", 0, kMaxPooled, dmc.pooled));
  return dmc;
}

bool is_shisa_convention(const DmsConfig& dms) {
  return dms.source == DmsConfig::Source::borrowed && dms.shift == 0 && dms.channel == -1 &&
         !dms.rezero_after_rope && !dms.per_layer && dms.evict;
}

}  // namespace winnow::model::detail
