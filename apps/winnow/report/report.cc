// winnow report: all results of `winnow eval` in a folder, as one page.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "apps/winnow/command.h"
#include "apps/winnow/flag_group.h"
#include "apps/winnow/output.h"
#include "apps/winnow/report/page.h"
#include "apps/winnow/report/svg_plot.h"
#include "apps/winnow/report/tables.h"
#include "base/error.h"
#include "checkpoint/atomic_file.h"
#include "checkpoint/json.h"
#include "checkpoint/json_text.h"
#include "checkpoint/replaceable_file.h"
#include "winnow/version.h"

namespace winnow::cli {
namespace {

using eval::Json;

struct ReportFlags {
  std::string directory;
  std::string html;
  std::string markdown;
};

bool is_result(const Json& json) {
  return json.is_object() && json.contains("run") && json.at("run").is_object() &&
         json.at("run").contains("measure") && json.at("run").contains("cache") &&
         json.at("run").contains("settings") && json.at("run").contains("model");
}

// All *.json files of the folder that are results; skips others.
std::vector<ResultFile> read_results(const std::string& directory) {
  std::error_code error;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (entry.path().extension() == ".json") {
      files.push_back(entry.path());
    }
  }
  require(!error, "{}: {}", directory, error.message());
  std::ranges::sort(files);
  std::vector<ResultFile> results;
  for (const auto& file : files) {
    try {
      Json json = json_from<Json>(json_text(parse_json(read_text_file(file), file.string())));
      if (is_result(json)) {
        results.push_back({file.stem().string(), std::move(json)});
      }
    } catch (const Error& error) {
      print_note(fmt::format("winnow: skips {}\n", error.what()));
    }
  }
  require(!results.empty(), "{}: no results of `winnow eval --out` are there", directory);
  return results;
}

std::string command_of(const ResultFile& result) {
  std::string line;
  for (const Json& word : result.json.at("run").at("command")) {
    const auto text = word.get<std::string>();
    const bool plain = text.find_first_of(" '\"$\\") == std::string::npos && !text.empty();
    line += (line.empty() ? "" : " ") + (plain ? text : fmt::format("'{}'", text));
  }
  return line;
}

// "winnow 0.1.0, AMD EPYC ..., 2026-11-21" for all runs, without duplicates.
std::set<std::string> environments(const std::vector<ResultFile>& results) {
  std::set<std::string> lines;
  for (const ResultFile& result : results) {
    const Json& run = result.json.at("run");
    const auto text = [&run](const char* key) {
      return run.contains(key) && run.at(key).is_string() ? run.at(key).get<std::string>() : "?";
    };
    lines.insert(fmt::format("winnow {}, {} on {} ({}), {}", text("winnow"), text("device"),
                             text("processor"), text("compiler"), text("date").substr(0, 10)));
  }
  return lines;
}

constexpr std::string_view kLegend =
    "The best of each column is marked; ± is a standard error. CR is the ratio that was measured, "
    "KV reads and peak tokens are entries per head.";

constexpr std::string_view kMarkdownBegins = "# Results of winnow eval\n";

std::string to_markdown(const std::vector<ResultFile>& results,
                        const std::vector<ResultTable>& tables) {
  std::string text = fmt::format("{}\n{}\n", kMarkdownBegins, kLegend);
  for (const ResultTable& table : tables) {
    text += fmt::format("\n## {}\n\n{}\n\n|", table.title, table.settings);
    for (const std::string& column : table.columns) {
      text += fmt::format(" {} |", column);
    }
    text += "\n|";
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
      text += "---|";
    }
    for (const auto& row : table.rows) {
      text += "\n|";
      for (const Cell& cell : row) {
        text += cell.best ? fmt::format(" **{}** |", cell.text) : fmt::format(" {} |", cell.text);
      }
    }
    text += "\n";
  }
  text += "\n## How\n\n";
  for (const std::string& line : environments(results)) {
    text += line + "\n\n";
  }
  for (const ResultFile& result : results) {
    text += fmt::format("    {}\n", command_of(result));
  }
  return text;
}

constexpr std::string_view kPageHead =
    R"(<meta name="viewport" content="width=device-width"><title>Results of winnow eval</title><style>
body { font: 15px/1.6 system-ui, sans-serif; margin: 2em auto; max-width: 92em; padding: 0 1em }
table { border-collapse: collapse; margin: 1em 0 } td, th { padding: .25em .8em; text-align: right }
th { border-bottom: 1px solid #999 } td:first-child, th:first-child { text-align: left; white-space: nowrap }
tr:nth-child(even) td { background: #f5f5f5 } code { font-size: 85%; overflow-wrap: anywhere }
td.best { font-weight: bold; color: #1b6b33 } td { white-space: nowrap } th { vertical-align: bottom } div { overflow-x: auto }
svg { width: 48%; min-width: 30em; margin: 1em 0 }
</style></head><body><h1>Results of winnow eval</h1>
)";

std::string to_html(const std::vector<ResultFile>& results,
                    const std::vector<ResultTable>& tables) {
  std::string page = fmt::format("{}<p>{}</p>\n", kPageHead, kLegend);
  for (const ResultTable& table : tables) {
    page += fmt::format("<h2>{}</h2>\n<p>{}</p>\n<div><table><tr>", escape_markup(table.title),
                        escape_markup(table.settings));
    for (const std::string& column : table.columns) {
      page += fmt::format("<th>{}</th>", escape_markup(column));
    }
    page += "</tr>\n";
    for (const auto& row : table.rows) {
      page += "<tr>";
      for (const Cell& cell : row) {
        page += fmt::format("<td{}>{}</td>", cell.best ? " class=\"best\"" : "",
                            escape_markup(cell.text));
      }
      page += "</tr>\n";
    }
    page += "</table></div>\n";
    for (const Plot& plot : table.plots) {
      page += to_svg(plot);
    }
  }
  page += "<h2>How</h2>\n";
  for (const std::string& line : environments(results)) {
    page += fmt::format("<p>{}</p>\n", escape_markup(line));
  }
  page += "<ul>\n";
  for (const ResultFile& result : results) {
    page += fmt::format("<li><code>{}</code></li>\n", escape_markup(command_of(result)));
  }
  return page + "</ul></body></html>\n";
}

int run_report(const ReportFlags& flags) {
  const auto results = read_results(flags.directory);
  const auto tables = make_tables(results);
  const auto path = [&flags](const std::string& given, const char* name) {
    return given.empty() ? (std::filesystem::path(flags.directory) / name).string() : given;
  };
  const std::string html = path(flags.html, "report.html");
  const std::string markdown = path(flags.markdown, "report.md");
  require_page(html);
  require_replaceable(markdown, text_that_begins("a report of winnow", kMarkdownBegins));
  write_page(html, to_html(results, tables));
  write_text_file(markdown, to_markdown(results, tables));
  print(fmt::format("{} results, {} tables: {}, {}\n", results.size(), tables.size(), html,
                    markdown));
  return kSuccess;
}

}  // namespace

void add_report(CLI::App& app, Run& run) {
  std::shared_ptr<ReportFlags> flags;
  CLI::App* command = add_command(
      app, run, "report",
      "One self-contained page, and the same as Markdown, of all results of `winnow eval --out` in "
      "a folder: tables with the best marked, plots, commands and versions",
      flags, run_report);
  const FlagGroup own(*command);
  own.open_option("directory", flags->directory, "DIR", "The folder with the results")->required();
  own.open_option("--html", flags->html, "FILE", "The page to write (default: DIR/report.html)");
  own.open_option("--markdown", flags->markdown, "FILE",
                  "The Markdown to write (default: DIR/report.md)");
}

}  // namespace winnow::cli
