#include "apps/winnow/eval/reference.h"

namespace winnow::cli {

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

}  // namespace winnow::cli
