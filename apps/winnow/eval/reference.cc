#include "apps/winnow/eval/reference.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/note.h"

namespace winnow::cli {
namespace {

bool is_lossy(const std::string& format) {
  return !format.empty() && format != "auto" && format != "bf16" && format != "fp32";
}

// Flags of `load` that a dense reference has, too, and that change what a model computes.
std::string shared_formats(const LoadOptions& load) {
  std::string flags;
  if (is_lossy(load.weights)) {
    flags = "--weights " + load.weights;
  }
  if (is_lossy(load.kv_dtype)) {
    flags += (flags.empty() ? "--kv-dtype " : " and --kv-dtype ") + load.kv_dtype;
  }
  return flags;
}

bool runs_as_stored(const LoadOptions& load) {
  return load.probe.empty() && load.weights == "auto" && !is_lossy(load.kv_dtype);
}

bool is_same_model(const std::string& reference, const LoadOptions& load) {
  std::error_code ignored;
  return reference == load.model || std::filesystem::equivalent(reference, load.model, ignored);
}

}  // namespace

std::unique_ptr<const engine::LoadedModel> load_reference(const LoadOptions& load,
                                                          const std::string& reference) {
  if (reference.empty()) {
    return nullptr;
  }
  LoadOptions options = load;
  options.cache = "dense";
  options.cr.reset();
  options.calibration.clear();
  options.window.reset();
  options.probe.clear();
  options.probe_threshold.reset();
  if (reference != "dense") {
    options.model = reference;
    options.weights = "auto";
    options.kv_dtype.clear();
    if (options.dtype == "fp8") {  // only fp8 weights support it
      options.dtype = "bf16";
    }
  }
  return engine::load_model(options);
}

void note_empty_comparison(const LoadOptions& load, const std::string& reference,
                           const engine::LoadedModel& model) {
  const bool is_dense = model.engine.cache.traits().kind == kvcache::RuleKind::dense;
  const std::string formats = shared_formats(load);
  if (reference == "dense" && !formats.empty()) {
    note(
        fmt::format("--reference dense has {}, too: the comparison leaves out what that costs; "
                    "--reference {} includes it",
                    formats, load.model));
  } else if (is_dense &&
             (reference == "dense" || (is_same_model(reference, load) && runs_as_stored(load)))) {
    note(fmt::format("--reference {}: the same model with the same cache, so nothing differs",
                     reference));
  }
}

}  // namespace winnow::cli
