#include "apps/winnow/report/tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string_view>
#include <tuple>

#include "checkpoint/json_text.h"
#include "eval/hyperscale.h"

namespace winnow::cli {
namespace {

using eval::Json;

enum class Better { high, low };

struct Column {
  std::string_view key;
  std::string_view title;
  Better better;
  double scale;
  int digits;
  std::string_view error;  // the key of its standard error, or ""
};

constexpr std::array<Column, 14> kColumns{{
    {"perplexity", "perplexity", Better::low, 1, 3, ""},
    {"nll_per_token", "log loss, nats/token", Better::low, 1, 4, "nll_error"},
    {"kld", "KLD, nats/token", Better::low, 1, 4, "kld_error"},
    {"top1_agreement", "same top token, %", Better::high, 100, 1, ""},
    {"token_match", "token match, %", Better::high, 100, 1, "token_match_error"},
    {"tokens_scored", "tokens scored", Better::high, 1, 0, ""},
    {"accuracy", "accuracy, %", Better::high, 100, 1, "accuracy_error"},
    {"accuracy_norm", "accuracy per character, %", Better::high, 100, 1, "accuracy_norm_error"},
    {"found", "variables found, %", Better::high, 100, 1, "found_error"},
    {"compression_ratio", "CR", Better::high, 1, 2, ""},
    {"kv_bytes", "cache, KiB", Better::low, 1.0 / 1024, 0, ""},
    {"kv_reads", "KV reads", Better::low, 1, 0, ""},
    {"peak_tokens", "peak tokens", Better::low, 1, 0, ""},
    {"skipped", "skipped", Better::low, 1, 0, ""},
}};

std::optional<double> number(const Json& json, std::string_view key) {
  const auto found = json.find(std::string(key));
  return found != json.end() && found->is_number() ? std::optional(found->get<double>())
                                                   : std::nullopt;
}

// "dms-cr8, dms bf16", "base, tova bf16"
std::string method_name(const ResultFile& result) {
  const Json& run = result.json.at("run");
  const Json& cache = run.at("cache");
  const std::filesystem::path model(run.at("model").at("path").get<std::string>());
  return fmt::format("{}, {} {}", model.filename().string(), cache.at("rule").get<std::string>(),
                     cache.at("kv_dtype").get<std::string>());
}

// "dms-cr8, dms bf16", "base, tova bf16 4x"
std::string run_name(const ResultFile& result) {
  std::string name = method_name(result);
  if (const auto ratio = number(result.json.at("run").at("cache"), "target_cr")) {
    name += fmt::format(" {:g}x", *ratio);
  }
  if (result.json.contains("width")) {  // a point of a hyper-scaling grid
    name += fmt::format(", {}-{}", result.json.at("length").get<int>(),
                        result.json.at("width").get<int>());
  }
  return name;
}

// Results with the same key are in one table.
std::string table_key(const ResultFile& result) {
  const Json& run = result.json.at("run");
  return fmt::format("{} {}", run.at("measure").get<std::string>(), json_text(run.at("settings")));
}

// Orders a model's runs by rule, target and format, with the compute format first.
auto order(const ResultFile& result) {
  const Json& run = result.json.at("run");
  const Json& cache = run.at("cache");
  const auto format = cache.at("kv_dtype").get<std::string>();
  return std::tuple(run.at("model").at("path").get<std::string>(),
                    cache.at("rule").get<std::string>(), number(cache, "target_cr").value_or(0),
                    format != "bf16" && format != "fp32", format);
}

using Group = std::vector<const ResultFile*>;  // of one table; nullptr if a row has no result

// "gsm8k, arithmetic", "needle, essays, 4096 tokens"
std::string title_of(const Json& run) {
  std::string title = run.at("measure").get<std::string>();
  const Json& settings = run.at("settings");
  for (const char* key : {"data", "text"}) {
    if (settings.contains(key) && settings.at(key).is_string()) {
      const auto name = std::filesystem::path(settings.at(key).get<std::string>()).stem().string();
      title += name.empty() ? "" : fmt::format(", {}", name);
    }
  }
  if (settings.contains("lengths") && settings.at("lengths").is_array()) {
    std::string lengths;
    for (const Json& length : settings.at("lengths")) {
      lengths += fmt::format("{}{}", lengths.empty() ? "" : ", ", json_text(length));
    }
    title += fmt::format(", {} tokens", lengths);
  }
  return title;
}

// "shots 8, max_tokens 120": the settings, without digests.
std::string readable(const Json& settings) {
  std::string text;
  for (const auto& [key, value] : settings.items()) {
    const Json& what = value.is_object() && value.contains("path") ? value.at("path") : value;
    const std::string shown = what.is_string() ? what.get<std::string>() : json_text(what);
    if (!key.ends_with("sha256") && !shown.empty()) {
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", key, shown);
    }
  }
  return text;
}

// Values that print alike are equally good.
void mark_best(std::vector<std::vector<Cell>>& rows, std::size_t column,
               const std::vector<std::optional<double>>& values, const Column& what) {
  const auto shown = [&what](double value) {
    return std::round(value * what.scale * std::pow(10.0, what.digits));
  };
  std::optional<double> best;
  bool differ = false;
  for (const auto& value : values) {
    if (value) {
      differ = differ || (best && shown(*value) != *best);
      best = !best                         ? shown(*value)
             : what.better == Better::high ? std::max(*best, shown(*value))
                                           : std::min(*best, shown(*value));
    }
  }
  for (std::size_t row = 0; row < rows.size() && differ; ++row) {
    rows[row][column].best = values[row] && shown(*values[row]) == *best;
  }
}

void add_column(ResultTable& table, const Group& group, const Column& column) {
  std::vector<std::optional<double>> values;
  for (const ResultFile* result : group) {
    values.push_back(result == nullptr ? std::nullopt : number(result->json, column.key));
  }
  const bool empty = std::ranges::none_of(values, [](const auto& v) { return v.has_value(); });
  const bool no_news = column.key == "skipped" && std::ranges::all_of(values, [](const auto& v) {
                         return v.value_or(0) == 0;
                       });
  if (empty || no_news) {
    return;
  }
  for (std::size_t row = 0; row < group.size(); ++row) {
    std::string text = "-";
    if (values[row]) {
      text = fmt::format("{:.{}f}", column.scale * *values[row], column.digits);
      if (const auto error = number(group[row]->json, column.error)) {
        text += fmt::format(" ± {:.{}f}", column.scale * *error, column.digits);
      }
    }
    table.rows[row].push_back({text, false});
  }
  table.columns.emplace_back(column.title);
  mark_best(table.rows, table.columns.size() - 1, values, column);
}

// Benefit against cost, with a method's ratios as one series.
void add_plot(ResultTable& table, const Group& group, std::string_view x, std::string_view x_label,
              std::string_view y, std::string_view y_label) {
  Plot plot{.title = fmt::format("{} against {}", y_label, x_label),
            .x_label = std::string(x_label),
            .y_label = std::string(y_label),
            .log_x = true,
            .series = {}};
  for (const ResultFile* result : group) {
    const auto a = number(result->json, x);
    const auto b = number(result->json, y);
    if (a && b) {
      const std::string name = method_name(*result);
      auto series = std::ranges::find(plot.series, name, &PlotSeries::name);
      if (series == plot.series.end()) {
        series = plot.series.insert(plot.series.end(), {name, {}, {}});
      }
      series->points.emplace_back(*a, *b);
    }
  }
  for (PlotSeries& series : plot.series) {
    std::ranges::sort(series.points);
    series.line = series.points;
  }
  if (plot.series.size() > 1) {
    table.plots.push_back(std::move(plot));
  }
}

void add_scaling_plot(ResultTable& table, const Group& group, const char* budget,
                      std::string_view label) {
  Plot plot{.title = fmt::format("accuracy against {}", label),
            .x_label = std::string(label),
            .y_label = "accuracy",
            .log_x = true,
            .series = {}};
  for (const ResultFile* result : group) {
    PlotSeries series{run_name(*result), {}, {}};
    std::vector<eval::BudgetPoint> points;
    for (const Json& point : result->json.at("points")) {
      points.push_back({point.at(budget).get<double>(), point.at("accuracy").get<double>()});
      series.points.emplace_back(points.back().budget, points.back().accuracy);
    }
    for (const eval::BudgetPoint& point : eval::pareto_frontier(points)) {
      series.line.emplace_back(point.budget, point.accuracy);
    }
    plot.series.push_back(std::move(series));
  }
  table.plots.push_back(std::move(plot));
}

// Splits hyper-scaling grids into one result per point.
std::vector<ResultFile> points_of(const Group& group) {
  std::vector<ResultFile> points;
  for (const ResultFile* result : group) {
    for (Json point : result->json.at("points")) {
      point["run"] = result->json.at("run");
      points.push_back({result->name, std::move(point)});
    }
  }
  return points;
}

void fill(ResultTable& table, const Group& group) {
  for (const ResultFile* result : group) {
    table.rows.push_back({{run_name(*result), false}});
  }
  for (const Column& column : kColumns) {
    add_column(table, group, column);
  }
}

ResultTable make_table(const Group& group) {
  const Json& run = group.front()->json.at("run");
  ResultTable table{.title = title_of(run),
                    .settings = readable(run.at("settings")),
                    .columns = {"run"},
                    .rows = {},
                    .plots = {}};
  if (group.front()->json.contains("points")) {
    const std::vector<ResultFile> points = points_of(group);
    Group all;
    for (const ResultFile& point : points) {
      all.push_back(&point);
    }
    fill(table, all);
    add_scaling_plot(table, group, "kv_reads", "KV reads");
    add_scaling_plot(table, group, "peak_tokens", "peak tokens");
    return table;
  }
  fill(table, group);
  add_plot(table, group, "compression_ratio", "compression ratio", "kld", "KLD");
  add_plot(table, group, "kv_reads", "KV reads", "accuracy", "accuracy");
  add_plot(table, group, "peak_tokens", "peak tokens", "accuracy", "accuracy");
  return table;
}

// The most common figure for a measure.
const Column& headline(const Json& result) {
  const std::string named = result.value("headline", "");
  for (const Column& column : kColumns) {
    const bool is_usual = column.key == "kld" || column.key == "accuracy" ||
                          (column.key == "perplexity" && !result.contains("kld"));
    if (result.contains(column.key) && (named.empty() ? is_usual : column.key == named)) {
      return column;
    }
  }
  return kColumns.front();
}

// "3.98", or "3.25 to 3.98": measured by one run or several.
std::string range(const std::vector<double>& values) {
  const auto [low, high] = std::ranges::minmax(values);
  const std::string text = fmt::format("{:.2f}", low);
  const std::string end = fmt::format("{:.2f}", high);
  return text == end ? text : fmt::format("{} to {}", text, end);
}

// Adds each row's ratios in all tables.
void add_ratios(ResultTable& table, const std::vector<std::pair<std::string, Group>>& groups) {
  for (std::vector<Cell>& row : table.rows) {
    std::vector<double> ratios;
    for (const auto& [key, group] : groups) {
      for (const ResultFile* result : group) {
        const auto ratio = number(result->json, "compression_ratio");
        if (ratio && run_name(*result) == row.front().text) {
          ratios.push_back(*ratio);
        }
      }
    }
    row.push_back({ratios.empty() ? "-" : range(ratios), false});
  }
  table.columns.emplace_back("CR");
}

// All runs and measures except grids, with one figure each.
ResultTable overview(const std::vector<std::pair<std::string, Group>>& groups) {
  ResultTable table{
      .title = "Overview",
      .settings =
          "One figure of each measure, and the compression ratios that were measured there.",
      .columns = {"run"},
      .rows = {},
      .plots = {}};
  std::vector<std::string> names;
  for (const auto& [key, group] : groups) {
    for (const ResultFile* result : group) {
      const std::string name = run_name(*result);
      if (!result->json.contains("points") && std::ranges::find(names, name) == names.end()) {
        names.push_back(name);
        table.rows.push_back({{name, false}});
      }
    }
  }
  add_ratios(table, groups);
  for (const auto& [key, group] : groups) {
    Group by_row(names.size(), nullptr);
    for (const ResultFile* result : group) {
      const auto row = std::ranges::find(names, run_name(*result)) - names.begin();
      if (static_cast<std::size_t>(row) < names.size()) {
        by_row[static_cast<std::size_t>(row)] = result;
      }
    }
    Column column = headline(group.front()->json);
    const std::string title =
        fmt::format("{}: {}", title_of(group.front()->json.at("run")), column.title);
    column.title = title;
    add_column(table, by_row, column);
  }
  return table;
}

}  // namespace

std::vector<ResultTable> make_tables(const std::vector<ResultFile>& results) {
  Group sorted;
  std::ranges::transform(results, std::back_inserter(sorted),
                         [](const ResultFile& result) { return &result; });
  std::ranges::stable_sort(sorted, {}, [](const ResultFile* result) { return order(*result); });
  std::vector<std::pair<std::string, Group>> groups;
  for (const ResultFile* result : sorted) {
    const std::string key = table_key(*result);
    auto found = std::ranges::find(groups, key, &std::pair<std::string, Group>::first);
    if (found == groups.end()) {
      found = groups.insert(groups.end(), {key, {}});
    }
    found->second.push_back(result);
  }
  std::vector<ResultTable> tables;
  if (groups.size() > 1) {
    tables.push_back(overview(groups));
  }
  for (const auto& [key, group] : groups) {
    tables.push_back(make_table(group));
  }
  return tables;
}

}  // namespace winnow::cli
