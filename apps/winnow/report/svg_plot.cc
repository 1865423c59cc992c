#include "apps/winnow/report/svg_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace winnow::cli {
namespace {

constexpr double kWidth = 680;
constexpr double kHeight = 360;
constexpr double kLeft = 60;
constexpr double kRight = 190;  // the legend
constexpr double kTop = 30;
constexpr double kBottom = 45;
constexpr std::array<std::string_view, 8> kColours{"#2563a8", "#d1622b", "#3a8f4d", "#a83a56",
                                                   "#7a5cb8", "#8a6d1d", "#2b8f96", "#666666"};

// Series with the same colour have different marks and dashes.
struct Mark {
  double dx;  // from its centre to the beginning of its path
  double dy;
  std::string_view path;
  std::string_view dashes;
};
constexpr std::array<Mark, 4> kMarks{{{-4, 0, "a4 4 0 1 0 8 0a4 4 0 1 0-8 0z", "none"},
                                      {-3.5, -3.5, "h7v7h-7z", "6 3"},
                                      {0, -5, "l5 8.5h-10z", "2 3"},
                                      {0, -5, "l5 5-5 5-5-5z", "8 3 2 3"}}};

// One axis: maps values to coordinates.
class Axis {
 public:
  Axis(bool log, double from, double to) : log_(log), from_(from), to_(to) {}

  void include(double value) {
    if (std::isfinite(value) && (!log_ || value > 0.0)) {
      low_ = std::min(low_, scaled(value));
      high_ = std::max(high_, scaled(value));
    }
  }
  // Adds a margin beyond the values, or around a single one.
  void settle() {
    if (!(low_ <= high_)) {
      low_ = 0.0;
      high_ = 1.0;
    }
    const double room = high_ > low_ ? 0.06 * (high_ - low_) : std::max(0.5, std::abs(high_) * 0.1);
    low_ -= room;
    high_ += room;
  }
  [[nodiscard]] bool holds(double value) const {
    return std::isfinite(value) && (!log_ || value > 0.0);
  }
  [[nodiscard]] double place(double value) const {
    return from_ + (scaled(value) - low_) / (high_ - low_) * (to_ - from_);
  }
  [[nodiscard]] std::vector<double> ticks() const {
    std::vector<double> values;
    constexpr int kTicks = 5;
    if (log_) {
      for (int power = static_cast<int>(std::floor(low_)); power <= high_; ++power) {
        for (const double nice : {1.0, 2.0, 5.0}) {
          const double tick = nice * std::pow(10.0, power);
          if (scaled(tick) >= low_ && scaled(tick) <= high_) {
            values.push_back(tick);
          }
        }
      }
      return values;
    }
    const double step = round_step((high_ - low_) / kTicks);
    const auto first = static_cast<int>(std::ceil(low_ / step));
    for (int i = first; i * step <= high_; ++i) {
      values.push_back(i * step);
    }
    return values;
  }

 private:
  [[nodiscard]] double scaled(double value) const { return log_ ? std::log10(value) : value; }
  static double round_step(double step) {
    const double power = std::pow(10.0, std::floor(std::log10(step)));
    for (const double nice : {1.0, 2.0, 5.0}) {
      if (nice * power >= step) {
        return nice * power;
      }
    }
    return 10.0 * power;
  }

  bool log_;
  double from_;
  double to_;
  double low_ = std::numeric_limits<double>::infinity();
  double high_ = -std::numeric_limits<double>::infinity();
};

std::string short_number(double value) {
  const double size = std::abs(value);
  return size >= 1e6   ? fmt::format("{:.3g}M", value / 1e6)
         : size >= 1e3 ? fmt::format("{:.3g}k", value / 1e3)
                       : fmt::format("{:.3g}", std::abs(value) < 1e-12 ? 0.0 : value);
}

std::string draw_axes(const Plot& plot, const Axis& x, const Axis& y) {
  const double right = kWidth - kRight;
  const double bottom = kHeight - kBottom;
  std::string svg = fmt::format("<text x=\"{}\" y=\"18\" font-weight=\"bold\">{}</text>\n", kLeft,
                                escape_markup(plot.title));
  for (const double tick : x.ticks()) {
    svg += fmt::format(
        "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" stroke=\"#ddd\"/>"
        "<text x=\"{0:.1f}\" y=\"{3}\" text-anchor=\"middle\">{4}</text>\n",
        x.place(tick), kTop, bottom, bottom + 16, short_number(tick));
  }
  for (const double tick : y.ticks()) {
    svg += fmt::format(
        "<line x1=\"{1}\" x2=\"{2}\" y1=\"{0:.1f}\" y2=\"{0:.1f}\" stroke=\"#ddd\"/>"
        "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5}</text>\n",
        y.place(tick), kLeft, right, kLeft - 6, y.place(tick) + 4, short_number(tick));
  }
  svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                     (kLeft + right) / 2, kHeight - 8, escape_markup(plot.x_label));
  svg += fmt::format(
      "<text transform=\"translate(14 {:.1f}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
      (kTop + bottom) / 2, escape_markup(plot.y_label));
  return svg;
}

std::string draw_mark(const Mark& mark, double x, double y, std::string_view colour,
                      std::string_view title) {
  return fmt::format("<path d=\"M{:.1f} {:.1f}{}\" fill=\"{}\"><title>{}</title></path>\n",
                     x + mark.dx, y + mark.dy, mark.path, colour, escape_markup(title));
}

std::string draw_series(const PlotSeries& series, std::size_t index, const Axis& x, const Axis& y) {
  const std::string_view colour = kColours[index % kColours.size()];
  const Mark& mark = kMarks[index / kColours.size() % kMarks.size()];
  std::string svg;
  std::string line;
  for (const auto& [a, b] : series.line) {
    if (x.holds(a) && y.holds(b)) {
      line += fmt::format("{:.1f},{:.1f} ", x.place(a), y.place(b));
    }
  }
  if (!line.empty()) {
    svg += fmt::format(
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\" "
        "stroke-dasharray=\"{}\"/>\n",
        line, colour, mark.dashes);
  }
  for (const auto& [a, b] : series.points) {
    if (x.holds(a) && y.holds(b)) {
      svg += draw_mark(mark, x.place(a), y.place(b), colour,
                       fmt::format("{}: {:.6g}, {:.6g}", series.name, a, b));
    }
  }
  const double at = kTop + 16.0 * static_cast<double>(index) + 8.0;
  svg += draw_mark(mark, kWidth - kRight + 14, at, colour, series.name);
  return svg + fmt::format("<text x=\"{}\" y=\"{:.1f}\">{}</text>\n", kWidth - kRight + 24, at + 4,
                           escape_markup(series.name));
}

}  // namespace

std::string escape_markup(std::string_view text) {
  std::string result;
  for (const char c : text) {
    result += c == '&'   ? std::string("&amp;")
              : c == '<' ? std::string("&lt;")
              : c == '>' ? std::string("&gt;")
                         : std::string(1, c);
  }
  return result;
}

std::string to_svg(const Plot& plot) {
  Axis x(plot.log_x, kLeft, kWidth - kRight);
  Axis y(false, kHeight - kBottom, kTop);
  for (const PlotSeries& series : plot.series) {
    for (const auto* points : {&series.points, &series.line}) {
      for (const auto& [a, b] : *points) {
        x.include(a);
        y.include(b);
      }
    }
  }
  x.settle();
  y.settle();
  const double height =
      std::max(kHeight, kTop + 16.0 * static_cast<double>(plot.series.size()) + 16.0);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" width=\"{}\" "
      "font-family=\"system-ui, sans-serif\" font-size=\"12\">\n",
      kWidth, height, kWidth);
  svg += draw_axes(plot, x, y);
  for (std::size_t i = 0; i < plot.series.size(); ++i) {
    svg += draw_series(plot.series[i], i, x, y);
  }
  return svg + "</svg>\n";
}

}  // namespace winnow::cli
