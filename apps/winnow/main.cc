// winnow: the command line.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <string>

#include "command.h"
#include "help_formatter.h"
#include "interrupt.h"
#include "output.h"
#include "winnow/version.h"

namespace winnow::cli {
namespace {

int report(std::string message) {
  std::ranges::replace(message, '\n', ' ');
  fmt::print(stderr, "winnow: error: {}\n", message);
  return kFailure;
}

int parse_and_run(int argc, char** argv) {
  CLI::App app("LLM inference with a KV cache that learns what to keep", "winnow");
  app.set_version_flag("--version", "winnow " WINNOW_VERSION);
  app.require_subcommand(1);
  app.formatter(std::make_shared<HelpFormatter>());
  Run run;
  add_generate(app, run);
  add_tokenize(app, run);
  add_logits(app, run);
  add_inspect(app, run);
  add_eval(app, run);
  add_demo(app, run);
  add_bench(app, run);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& request) {  // --help, --version
    return app.exit(request);
  } catch (const CLI::ParseError& error) {
    return report(std::string(error.what()) + " (see winnow --help)");
  }
  catch_interrupts();
  const int code = run();
  print_now("");
  return code;
}

}  // namespace
}  // namespace winnow::cli

int main(int argc, char** argv) {
  try {
    return winnow::cli::parse_and_run(argc, argv);
  } catch (const winnow::cli::Interrupted&) {
    return winnow::cli::kInterrupted;
  } catch (const std::bad_alloc&) {
    return winnow::cli::report("out of memory");
  } catch (const std::exception& error) {
    return winnow::cli::report(error.what());
  }
}
