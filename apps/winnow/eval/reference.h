// The reference that a run is compared with.
#pragma once

#include <memory>
#include <string>

#include "api/llm_load.h"

namespace winnow::cli {

/// The model that --reference names: a directory, or "dense" for `load`'s model without any
/// compression; null for "".
std::unique_ptr<const engine::LoadedModel> load_reference(const LoadOptions& load,
                                                          const std::string& reference);

/// Tells the user if `model`, made from `load`, and the reference share what is to be measured.
void note_empty_comparison(const LoadOptions& load, const std::string& reference,
                           const engine::LoadedModel& model);

}  // namespace winnow::cli
