// winnow eval frontier: which method is more accurate at equal KV reads, or at equal peak tokens.
#include <fmt/format.h>

#include <cmath>
#include <map>

#include "apps/winnow/eval/eval.h"
#include "apps/winnow/flags.h"
#include "apps/winnow/output.h"
#include "base/error.h"
#include "checkpoint/json.h"
#include "checkpoint/json_text.h"
#include "eval/hyperscale.h"

namespace winnow::cli {
namespace {

using eval::BudgetPoint;
using eval::Json;

struct FrontierFlags {
  std::vector<std::string> files;
  bool json = false;
};

/// Points by method, in the order of the methods' first results.
using Methods = std::vector<std::pair<std::string, Json>>;

// All results with the same rule and format are one method, whatever their ratios.
std::string method_of(const Json& result) {
  const Json& cache = result.at("run").at("cache");
  return fmt::format("{} {}", cache.at("rule").get<std::string>(),
                     cache.at("kv_dtype").get<std::string>());
}

Methods read_methods(const std::vector<std::string>& files) {
  Methods methods;
  for (const std::string& file : files) {
    const Json result = json_from<Json>(json_text(parse_json(read_text_file(file), file)));
    const bool is_result = result.is_object() && result.contains("points") &&
                           result.contains("run") && result.at("points").is_array();
    require(is_result, "{}: expected what `winnow eval hyperscale --out` wrote", file);
    const std::string name = method_of(result);
    auto found = std::ranges::find(methods, name, &Methods::value_type::first);
    if (found == methods.end()) {
      found = methods.insert(methods.end(), {name, Json::array()});
    }
    for (const Json& point : result.at("points")) {
      found->second.push_back(point);
    }
  }
  return methods;
}

std::vector<BudgetPoint> frontier_of(const Json& points, const char* budget) {
  std::vector<BudgetPoint> all;
  for (const Json& point : points) {
    all.push_back({point.at(budget).get<double>(), point.at("accuracy").get<double>()});
  }
  return eval::pareto_frontier(std::move(all));
}

Json to_json(const std::vector<BudgetPoint>& frontier) {
  Json result = Json::array();
  for (const BudgetPoint& point : frontier) {
    result.push_back({point.budget, point.accuracy});
  }
  return result;
}

Json compare(const Methods& methods, const char* budget) {
  Json frontiers = Json::object();
  Json margins = Json::array();
  for (const auto& [name, points] : methods) {
    frontiers[name] = to_json(frontier_of(points, budget));
    for (const auto& [other, other_points] : methods) {
      const double margin =
          eval::frontier_margin(frontier_of(points, budget), frontier_of(other_points, budget));
      if (other != name) {
        margins.push_back({{"method", name},
                           {"over", other},
                           {"margin", std::isnan(margin) ? Json() : Json(margin)}});
      }
    }
  }
  return {{"frontiers", frontiers}, {"margins", margins}};
}

void print_comparison(const char* title, const Json& comparison) {
  print(fmt::format("{}\n", title));
  for (const auto& [name, frontier] : comparison.at("frontiers").items()) {
    print(fmt::format("  {:<16}", name));
    for (const Json& point : frontier) {
      print(fmt::format("  {:.0f}: {:.1f} %", point.at(0).get<double>(),
                        100.0 * point.at(1).get<double>()));
    }
    print("\n");
  }
  for (const Json& margin : comparison.at("margins")) {
    print(fmt::format(
        "  {:<16} over {:<16} {}\n", margin.at("method").get<std::string>(),
        margin.at("over").get<std::string>(),
        margin.at("margin").is_null()
            ? "no budget in common"
            : fmt::format("{:+.1f} points", 100.0 * margin.at("margin").get<double>())));
  }
}

int run_frontier(const FrontierFlags& flags) {
  const Methods methods = read_methods(flags.files);
  const Json reads = compare(methods, "kv_reads");
  const Json peak = compare(methods, "peak_tokens");
  if (flags.json) {
    print_json({{"kv_reads", reads}, {"peak_tokens", peak}});
  } else {
    print_comparison("accuracy against KV reads", reads);
    print_comparison("accuracy against peak tokens", peak);
  }
  return kSuccess;
}

}  // namespace

void add_eval_frontier(CLI::App& eval, Run& run) {
  std::shared_ptr<FrontierFlags> flags;
  CLI::App* command = add_command(
      eval, run, "frontier",
      "Pareto frontiers of hyper-scaling results by method, and the mean margins between them over "
      "the budgets they share",
      flags, run_frontier);
  command->add_option("files", flags->files, "Files of `winnow eval hyperscale --out`")
      ->required()
      ->type_name("FILE");
  add_json_flag(FlagGroup(*command), flags->json);
}

}  // namespace winnow::cli
