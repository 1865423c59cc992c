// What determines a model's results, for files that an interrupted run continues.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "api/llm_load.h"

namespace winnow::cli {

/// Identifies a model directory: path, digest, family, parameters.
nlohmann::ordered_json describe_model(const std::string& directory,
                                      const engine::LoadedModel& model);

/// The model and all settings that its results depend on.
nlohmann::ordered_json describe_run(const LoadOptions& load, const engine::LoadedModel& model);

}  // namespace winnow::cli
