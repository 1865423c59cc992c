// winnow eval: what compression costs, and what it gains.
#include "apps/winnow/eval/eval.h"

namespace winnow::cli {

void add_eval(CLI::App& app, Run& run) {
  CLI::App* eval = app.add_subcommand("eval", "Measures what compression costs and what it buys");
  add_eval_suite(*eval, run);
  add_eval_perplexity(*eval, run);
  add_eval_divergence(*eval, run);
  add_eval_needle(*eval, run);
  add_eval_variables(*eval, run);
  add_eval_ruler(*eval, run);
  add_eval_tasks(*eval, run);
  add_eval_hyperscale(*eval, run);
  add_eval_frontier(*eval, run);
  add_eval_profile(*eval, run);
  add_eval_latency(*eval, run);
}

}  // namespace winnow::cli
