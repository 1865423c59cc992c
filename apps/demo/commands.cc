// The only command of winnow-demo.
#include "apps/winnow/command.h"

namespace winnow::cli {

void add_commands(CLI::App& app, Run& run) {
  add_demo(app, run);
}

}  // namespace winnow::cli
