#include "apps/winnow/model_names.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <string_view>
#include <vector>

#include "apps/winnow/interrupt.h"
#include "base/error.h"
#include "hub/pull.h"

namespace winnow::cli {
namespace {

constexpr std::int64_t kMegabyte = 1'000'000;

bool takes_model(const CLI::Option& option) {
  constexpr std::array<std::string_view, 4> kTypes{kModelType, kDenseOrModelType, kReferenceType,
                                                   kProbeType};
  return option.count() == 1 && std::ranges::find(kTypes, option.get_type_name()) != kTypes.end();
}

// The models in a folder that --model could name, if it is one: "; assets has base, dms-cr8".
std::string models_in(const std::filesystem::path& folder) {
  std::error_code ignored;
  std::vector<std::string> models;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::filesystem::path& path = entry.path();
    if (std::filesystem::exists(path / "config.json", ignored) || path.extension() == ".gguf") {
      models.push_back(path.filename().string());
    }
  }
  std::ranges::sort(models);
  return models.empty() ? "" : fmt::format("; {} has {}", folder.string(), fmt::join(models, ", "));
}

// Refuses a folder that contains models, but is not one.
void refuse_shelf(const std::string& given) {
  std::error_code ignored;
  const std::filesystem::path folder = given;
  if (std::filesystem::is_directory(folder, ignored) &&
      !std::filesystem::exists(folder / "config.json", ignored)) {
    const std::string models = models_in(folder);
    require(models.empty(), "{}: no model: it has no config.json{}", given, models);
  }
}

// find(). If a name may be a misspelt path, adds the contents of its folder to the error.
template <class Find>
auto find_or_explain(const std::string& given, const Find& find) {
  try {
    return find();
  } catch (const Error& error) {
    throw Error(error.what() + models_in(std::filesystem::path(given).parent_path()));
  }
}

// Refuses a word that is neither a path nor org/name, such as Ollama's names.
void refuse_bare_name(const std::string& given) {
  std::error_code ignored;
  require(given.find('/') != std::string::npos || std::filesystem::exists(given, ignored),
          "{}: no such file or directory; a model is a folder, a GGUF file or org/name on the "
          "Hugging Face Hub (Qwen/Qwen3-0.6B)",
          given);
}

void find_named_model(CLI::Option& option) {
  const std::string given = option.results().front();
  if (option.check_lname("model")) {
    refuse_bare_name(given);
    refuse_shelf(given);
  }
  DownloadProgress progress(given);
  const bool is_probe = option.get_type_name() == kProbeType;
  const std::string found = find_or_explain(given, [&] {
    return hub::find_model(given, std::ref(progress),
                           is_probe ? hub::Purpose::probe : hub::Purpose::model);
  });
  if (found != given) {
    option.clear();
    option.add_result(found);
    option.run_callback();
  }
}

}  // namespace

void DownloadProgress::operator()(std::int64_t done, std::int64_t total) {
  stop_if_interrupted();
  if (!bar_) {
    bar_.emplace(name_, std::max<std::int64_t>(total / kMegabyte, 1), "MB");
  }
  bar_->update(done / kMegabyte);
}

void find_named_models(const CLI::App& app) {
  for (const CLI::App* command : app.get_subcommands()) {
    for (CLI::Option* option : const_cast<CLI::App*>(command)->get_options(
             [](CLI::Option* candidate) { return takes_model(*candidate); })) {
      find_named_model(*option);
    }
    find_named_models(*command);
  }
}

DescribedModel find_described_model(const std::string& given) {
  refuse_bare_name(given);
  refuse_shelf(given);
  return find_or_explain(given, [&]() -> DescribedModel {
    if (const auto found = hub::find_local_model(given)) {
      return {.path = *found, .headers = nullptr};
    }
    auto headers = std::make_unique<hub::ModelHeaders>(
        given, [](std::int64_t /*done*/, std::int64_t /*total*/) { stop_if_interrupted(); });
    return {.path = headers->pulled().model, .headers = std::move(headers)};
  });
}

}  // namespace winnow::cli
