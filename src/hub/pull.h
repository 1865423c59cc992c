// Finds models by name, in the local cache or on the Hub.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "hub/environment.h"
#include "hub/model_name.h"
#include "hub/repository_cache.h"

namespace winnow::hub {

/// Called several times a second with the bytes so far and in all. An exception ends the download;
/// what was downloaded so far is kept.
using OnProgress = std::function<void(std::int64_t done, std::int64_t total)>;

/// Downloads what winnow needs of the newest commit of a revision into the cache: configuration,
/// tokenizer, chat templates and safetensors, or a model in GGUF (gguf_choice.h). Returns the
/// snapshot's directory, which appears when all of it is there, or the file to open in it. Throws
/// Error.
std::filesystem::path pull(const ModelName& name, const Environment& environment,
                           const OnProgress& on_progress = {});

/// What tells a model's properties.
struct PulledHeaders {
  std::filesystem::path model;  // as from pull()
  std::int64_t read = 0;        // bytes that came
  std::int64_t total = 0;       // bytes of the files
};

/// Brings configuration and headers of weights into `folder`, which gets the layout of a cache.
/// Weight files have their size and their header; their values are holes (header_download.h).
/// Throws Error.
PulledHeaders pull_headers(const ModelName& name, const Environment& environment,
                           const std::filesystem::path& folder, const OnProgress& on_progress = {});

/// The directory or file of a model that the user names, without a download: `model` itself if it
/// exists or cannot be a name on the Hub; else the snapshot in the cache, if it is complete.
std::optional<std::filesystem::path> find_local_model(const std::string& model,
                                                      Purpose purpose = Purpose::model);

/// Calls bring() for a `model` that is a name; its errors then say where the model is not.
using BringModel = std::function<void(const ModelName&, const Environment&)>;
void bring_model(const std::string& model, const BringModel& bring);

/// The same as find_local_model(); downloads what is not there.
std::string find_model(const std::string& model, const OnProgress& on_progress = {},
                       Purpose purpose = Purpose::model);

/// Whether a model needs this file. `name` may include folders.
bool is_needed(const std::string& name);

}  // namespace winnow::hub
