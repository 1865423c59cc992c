// The measures of `winnow eval`, one file each: eval_<name>.cc.
#pragma once

#include "apps/winnow/command.h"

namespace winnow::cli {

void add_eval_perplexity(CLI::App& eval, Run& run);
void add_eval_divergence(CLI::App& eval, Run& run);
void add_eval_needle(CLI::App& eval, Run& run);
void add_eval_variables(CLI::App& eval, Run& run);
void add_eval_ruler(CLI::App& eval, Run& run);
void add_eval_tasks(CLI::App& eval, Run& run);
void add_eval_hyperscale(CLI::App& eval, Run& run);
void add_eval_frontier(CLI::App& eval, Run& run);
void add_eval_suite(CLI::App& eval, Run& run);
void add_eval_profile(CLI::App& eval, Run& run);
void add_eval_latency(CLI::App& eval, Run& run);

}  // namespace winnow::cli
