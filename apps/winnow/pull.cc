// winnow pull: downloads a model of the Hugging Face Hub to the local cache.
#include <functional>

#include "apps/winnow/command.h"
#include "apps/winnow/flag_group.h"
#include "apps/winnow/model_names.h"
#include "apps/winnow/output.h"
#include "base/error.h"
#include "hub/pull.h"

namespace winnow::cli {
namespace {

struct PullOptions {
  std::string name;
};

int run_pull(const PullOptions& options) {
  const auto name = hub::parse_model_name(options.name);
  require(name.has_value(),
          "{}: expected org/name (Qwen/Qwen3-0.6B), org/name@revision or org/name:TYPE",
          options.name);
  DownloadProgress progress(options.name);
  const auto snapshot = hub::pull(*name, hub::read_environment(), std::ref(progress));
  progress.clear();
  print(snapshot.string() + "\n");
  return kSuccess;
}

}  // namespace

void add_pull(CLI::App& app, Run& run) {
  std::shared_ptr<PullOptions> options;
  CLI::App* command = add_command(
      app, run, "pull",
      "Brings the newest commit of a model on the Hugging Face Hub into the local cache, as far as "
      "winnow needs it, and prints its directory, or its file if that is GGUF",
      options, run_pull);
  FlagGroup(*command)
      .open_option("NAME", options->name, "",
                   "org/name; org/name@revision with a branch, tag or commit; org/name:Q4_K_M or "
                   "org/name:FILE.gguf of its GGUF files")
      ->required();
}

}  // namespace winnow::cli
