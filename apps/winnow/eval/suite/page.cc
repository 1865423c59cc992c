#include "apps/winnow/eval/suite/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "apps/winnow/eval/run.h"
#include "apps/winnow/output.h"
#include "apps/winnow/report/svg_plot.h"
#include "checkpoint/json_text.h"

namespace winnow::cli {
namespace {

constexpr std::string_view kSuiteHead =
    R"(<meta name="viewport" content="width=device-width, initial-scale=1"><title>{0}</title><style>
:root {{ color-scheme: light dark; --ink: #16202a; --soft: #5a6672; --paper: #fff; --card: #f6f8fa; --line: #d5dbe1;
  --holds: #1a7f37; --loses: #b3261e; --open: #8a5a00; --base: #2563a8; --student: #c2571f }}
@media (prefers-color-scheme: dark) {{ :root {{ --ink: #e6edf3; --soft: #9aa7b4; --paper: #0e1318; --card: #171e26;
  --line: #313b46; --holds: #56d364; --loses: #ff7b72; --open: #e3b341; --base: #79b8ff; --student: #ffa657 }} }}
* {{ box-sizing: border-box }}
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 76rem; padding: 1.5rem 1rem 3rem;
  background: var(--paper); color: var(--ink) }}
h1 {{ font-size: 1.5rem; margin: 0 0 .3rem }} h2 {{ font-size: 1.15rem; margin: 2.2rem 0 .6rem }}
p {{ margin: .4rem 0 }} .soft {{ color: var(--soft); font-size: .88rem }}
.answer {{ border-left: .4rem solid var(--tone); background: var(--card); padding: .8rem 1rem; border-radius: .3rem;
  font-size: 1.1rem; margin: 1rem 0 }}
.facts {{ display: flex; flex-wrap: wrap; gap: .8rem 2.2rem; margin: 1rem 0 }}
.facts b {{ display: block; font-size: 1.35rem; font-variant-numeric: tabular-nums }}
.holds {{ --tone: var(--holds) }} .loses {{ --tone: var(--loses) }} .open {{ --tone: var(--open) }}
table {{ border-collapse: collapse; width: 100% }}
th {{ text-align: right; font-size: .82rem; color: var(--soft); font-weight: 600; padding: .3rem .6rem;
  border-bottom: 2px solid var(--line); vertical-align: bottom }}
td {{ text-align: right; padding: .6rem; border-bottom: 1px solid var(--line); vertical-align: top;
  font-variant-numeric: tabular-nums }}
th:first-child, td:first-child {{ text-align: left; padding-left: 0; width: 30% }}
td.number {{ white-space: nowrap }} td.verdict, th.verdict {{ text-align: left; width: 15rem }}
.verdict b {{ color: var(--tone) }} .name {{ font-weight: 600 }}
svg {{ max-width: 100% }} svg text {{ fill: var(--ink) }} svg line {{ stroke: var(--line) }} td svg {{ min-width: 10.5rem }} td svg line {{ stroke: var(--soft) }}
code {{ font-size: .85rem; overflow-wrap: anywhere }} .plot {{ overflow-x: auto }} .plot svg {{ min-width: 34rem; max-width: none }}
@media (max-width: 52rem) {{
  thead {{ display: none }} table, tbody, tr, td, td:first-child {{ display: block; width: auto }}
  tr {{ background: var(--card); border-radius: .4rem; padding: .7rem .8rem; margin: .8rem 0 }}
  td, td:first-child {{ border: 0; padding: .15rem 0; text-align: left }} td:first-child {{ padding-bottom: .4rem }}
  td[data-name]::before {{ content: attr(data-name); display: inline-block; width: 6.5rem; color: var(--soft); font-size: .85rem }}
  td.verdict {{ width: auto; font-size: 1.05rem }} .plot svg {{ min-width: 30rem }}
}}
</style></head><body>
)";

std::string_view tone(eval::Verdict verdict) {
  return verdict == eval::Verdict::holds   ? "holds"
         : verdict == eval::Verdict::loses ? "loses"
                                           : "open";
}

std::string number(const std::optional<double>& value, double error, const eval::SuiteRow& row) {
  if (!value) {
    return "–";
  }
  const std::string text =
      fmt::format("{:.{}f}{}", *value, row.digits,
                  std::isfinite(error) ? fmt::format(" ± {:.{}f}", error, row.digits) : "");
  return row.unit.empty()
             ? text
             : fmt::format("{} <span class=\"soft\">{}</span>", text, escape_markup(row.unit));
}

std::string difference(const eval::SuiteRow& row) {
  if (row.count == 0) {
    return "–";
  }
  const int digits = std::max(1, row.digits);
  const std::string error =
      std::isfinite(row.loss.error) ? fmt::format(" ± {:.{}f}", row.loss.error, digits) : "";
  const std::string bound =
      row.kind == eval::SuiteRow::Kind::exactness || !std::isfinite(row.interval.high)
          ? ""
          : fmt::format("<p class=\"soft\">loss at most {:.{}f}</p>", row.interval.high, digits);
  return fmt::format("{:+.{}f}{} <span class=\"soft\">{}</span>{}", row.difference(), digits, error,
                     escape_markup(row.loss_unit), bound);
}

// The scale for a loss's interval: from a gain of 3 times the allowed loss to a loss of 5 times.
class LossScale {
 public:
  explicit LossScale(double allowed, double loss) {
    const double unit = allowed > 0.0 ? allowed : std::max(1.0, std::abs(loss) / 2.0);
    low_ = -3.0 * unit;
    high_ = 5.0 * unit;
  }
  [[nodiscard]] bool shows(double loss) const { return loss >= low_ && loss <= high_; }
  [[nodiscard]] double place(double loss) const {
    const double share = (std::clamp(loss, low_, high_) - low_) / (high_ - low_);
    return kLeft + share * (kWidth - 2.0 * kLeft);
  }

  static constexpr double kWidth = 170;
  static constexpr double kLeft = 8;

 private:
  double low_ = 0.0;
  double high_ = 1.0;
};

// The student is better to the left; the dashed line is the criterion.
std::string interval_picture(const eval::SuiteRow& row) {
  if (row.count == 0 || row.kind == eval::SuiteRow::Kind::exactness) {
    return "";
  }
  const LossScale scale(row.allowed, row.loss.mean);
  const std::string_view colour = tone(row.verdict);
  std::string svg = fmt::format(
      "<svg viewBox=\"0 0 {0} 26\" width=\"{0}\" height=\"26\" role=\"img\"><title>loss {1:.3g}, "
      "between {2:.3g} and {3:.3g}; allowed {4:.3g}</title>",
      LossScale::kWidth, row.loss.mean, row.interval.low, row.interval.high, row.allowed);
  svg += fmt::format(
      "<rect x=\"0\" y=\"3\" width=\"{:.1f}\" height=\"20\" fill=\"var(--holds)\" "
      "opacity=\".12\"/>",
      scale.place(row.allowed));
  svg += fmt::format("<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"3\" y2=\"23\"/>", scale.place(0.0));
  svg += fmt::format("<path d=\"M{:.1f} 1v24\" stroke=\"var(--ink)\" stroke-dasharray=\"3 2\"/>",
                     scale.place(row.allowed));
  svg += fmt::format("<path d=\"M{:.1f} 13H{:.1f}\" stroke=\"var(--{})\" stroke-width=\"3\"/>",
                     scale.place(row.interval.low), scale.place(row.interval.high), colour);
  if (scale.shows(row.loss.mean)) {
    svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"13\" r=\"4.5\" fill=\"var(--{})\"/>",
                       scale.place(row.loss.mean), colour);
  }
  // An arrow if it continues beyond the picture.
  if (!scale.shows(row.interval.high)) {
    svg += fmt::format("<path d=\"M{:.1f} 7l7 6-7 6z\" fill=\"var(--{})\"/>", LossScale::kWidth - 8,
                       colour);
  }
  if (!scale.shows(row.interval.low)) {
    svg += fmt::format("<path d=\"M8 7l-7 6 7 6z\" fill=\"var(--{})\"/>", colour);
  }
  return svg + "</svg>";
}

std::string row_html(const eval::SuiteRow& row) {
  const std::string need = row.need().empty() ? "" : ": " + row.need();
  const std::string notes =
      row.note.empty() ? "" : fmt::format("<p class=\"soft\">{}</p>", escape_markup(row.note));
  return fmt::format(
      "<tr class=\"{}\"><td><span class=\"name\">{}</span><p class=\"soft\">{}</p>{}</td>"
      "<td class=\"number\" data-name=\"Base\">{}</td><td class=\"number\" "
      "data-name=\"Student\">{}</td><td class=\"number\" data-name=\"Difference\">{}</td>"
      "<td>{}</td><td class=\"verdict\"><b>{}</b>{}<p class=\"soft\">Criterion: {}. {} {}.</p></td>"
      "</tr>\n",
      tone(row.verdict), escape_markup(row.title), escape_markup(row.what), notes,
      number(row.base, row.base_error, row), number(row.student, row.student_error, row),
      difference(row), interval_picture(row), row.verdict_word(), escape_markup(need),
      escape_markup(row.criterion), grouped(row.count), escape_markup(row.sample));
}

std::string table_html(std::span<const eval::SuiteRow> rows, bool of_cost) {
  std::string html =
      "<table><thead><tr><th>Measure</th><th>Base</th><th>Student</th><th>Difference</th>"
      "<th>Loss and its bounds</th><th class=\"verdict\">Verdict and criterion</th></tr></thead>"
      "<tbody>\n";
  for (const eval::SuiteRow& row : rows) {
    if ((row.kind == eval::SuiteRow::Kind::cost) == of_cost) {
      html += row_html(row);
    }
  }
  return html + "</tbody></table>\n";
}

// Right answers of both models by the value's distance from the end.
std::string distance_plot(const eval::SuiteRow& row) {
  if (!row.details.contains("by_distance")) {
    return "";
  }
  Plot plot{.title = "Right answers by distance",
            .x_label = "tokens between the value and where it is needed",
            .y_label = "%",
            .log_x = true,
            .series = {{"base", {}, {}}, {"student", {}, {}}}};
  for (const Json& point : row.details.at("by_distance")) {
    const double tokens = std::max(1.0, point.at("tokens").get<double>());
    for (PlotSeries& series : plot.series) {
      series.points.emplace_back(tokens, 100.0 * point.at(series.name).get<double>());
    }
  }
  for (PlotSeries& series : plot.series) {
    std::ranges::sort(series.points);
    series.line = series.points;
  }
  return fmt::format("<h2>{}</h2><div class=\"plot\">{}</div>\n", escape_markup(row.title),
                     to_svg(plot));
}

std::string fact(const std::string& value, std::string_view name) {
  return fmt::format("<div><b>{}</b><span class=\"soft\">{}</span></div>", value, name);
}

std::string facts_html(std::span<const eval::SuiteRow> rows, double ratio) {
  std::string html = "<div class=\"facts\">" +
                     fact(fmt::format("{:.1f}x", ratio), "fewer cache entries, measured");
  for (const eval::SuiteRow& row : rows) {
    if (row.kind == eval::SuiteRow::Kind::cost && row.base && row.student) {
      html +=
          fact(fmt::format("{:.{}f} → {:.{}f}", *row.base, row.digits, *row.student, row.digits),
               escape_markup(fmt::format("{}, {}", row.title, row.unit)));
    }
  }
  return html + "</div>\n";
}

std::string how_html(const Json& run) {
  std::string command;
  for (const Json& word : run.at("command")) {
    command += (command.empty() ? "" : " ") + word.get<std::string>();
  }
  const Json& base = run.at("settings").at("base");
  const Json& student = run.at("model");
  return fmt::format(
      "<h2>How</h2><p>Both models get the same questions and texts; differences are taken question "
      "by question or window by window, and ± is their standard error. The bounds are one-sided, "
      "95 "
      "% each: Student's t for means, Tango's score for right answers. A row holds if the upper "
      "bound "
      "of the loss is within the criterion (shaded), loses if the lower bound is beyond it. In the "
      "pictures the grey line is no loss, the dashed one the criterion.</p>\n"
      "<p>Base: <code>{}</code>, {} parameters, sha256 <code>{:.12}</code>. Student: "
      "<code>{}</code>, sha256 <code>{:.12}</code>, rule {}, entries {}.</p>\n"
      "<p><code>{}</code></p>\n<p class=\"soft\">winnow {}, {}, {}, seed {}, {} threads, {:.0f} "
      "s, {}</p>\n",
      escape_markup(base.at("path").get<std::string>()), grouped(base.at("parameters").get<long>()),
      base.at("sha256").get<std::string>(), escape_markup(student.at("path").get<std::string>()),
      student.at("sha256").get<std::string>(), run.at("cache").at("rule").get<std::string>(),
      run.at("cache").at("kv_dtype").get<std::string>(), escape_markup(command),
      escape_markup(run.at("winnow").get<std::string>()),
      escape_markup(run.at("device").get<std::string>()),
      escape_markup(run.at("processor").get<std::string>()), json_text(run.at("seed")),
      json_text(run.at("threads")), run.at("seconds").get<double>(),
      run.at("date").get<std::string>());
}

}  // namespace

std::string suite_page(std::span<const eval::SuiteRow> rows, const eval::Conclusion& conclusion,
                       const Json& results) {
  const Json& run = results.at("run");
  const std::string student = escape_markup(run.at("model").at("path").get<std::string>());
  const std::string base =
      escape_markup(run.at("settings").at("base").at("path").get<std::string>());
  std::string page = fmt::format(kSuiteHead, "Can I use " + student + "?");
  page += fmt::format(
      "<h1>Can I use this student?</h1>\n<p class=\"soft\"><code>{}</code> in place of "
      "<code>{}</code></p>\n",
      student, base);
  page += fmt::format("<p class=\"answer {}\">{}</p>\n", tone(conclusion.verdict),
                      escape_markup(conclusion.sentence));
  page += facts_html(rows, results.at("compression_ratio").get<double>());
  page += "<h2>What it says</h2>\n" + table_html(rows, /*of_cost=*/false);
  if (std::ranges::any_of(rows,
                          [](const auto& row) { return row.kind == eval::SuiteRow::Kind::cost; })) {
    page += "<h2>What it costs</h2>\n" + table_html(rows, /*of_cost=*/true);
  }
  for (const eval::SuiteRow& row : rows) {
    page += distance_plot(row);
  }
  return page + how_html(run) + "</body></html>\n";
}

}  // namespace winnow::cli
