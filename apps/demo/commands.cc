// The only command of winnow-demo.
#include "apps/winnow/command.h"

namespace winnow::cli {

void add_commands(CLI::App& app, Run& run) {
  add_demo(app, run);
}

std::string step_after_demo(const std::string& /*model*/) {
  return "make build, for all of winnow, then ";
}

}  // namespace winnow::cli
