#include "apps/winnow/train/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>
#include <vector>

#include "apps/winnow/report/svg_plot.h"
#include "checkpoint/json_text.h"

namespace winnow::cli {
namespace {

using nlohmann::json;
using Points = std::vector<std::pair<double, double>>;
using Lines = std::vector<json>;

constexpr std::size_t kMostPoints = 400;  // of a line
constexpr std::size_t kLastUpdates = 20;  // updates that the heat map covers

constexpr std::string_view kTrainingPageHead =
    R"(<meta name="viewport" content="width=device-width"><title>{0}</title><style>
body {{ font: 15px/1.6 system-ui, sans-serif; margin: 2em auto; max-width: 92em; padding: 0 1em }}
svg {{ width: 48%; min-width: 30em; margin: 1em 0 }} td, th {{ padding: .2em .8em; text-align: right }}
</style></head><body><h1>{0}</h1>
)";

// Lines of updates have a loss; lines of evaluations have measurements on held-out text.
Lines lines_with(const std::string& metrics, const char* key) {
  Lines lines;
  std::istringstream stream(metrics);
  for (std::string line; std::getline(stream, line);) {
    json object = json_or_discarded<json>(line);
    if (object.is_object() && object.contains(key)) {
      lines.push_back(std::move(object));
    }
  }
  return lines;
}

template <class Value>
Points by_step(const Lines& lines, const Value& value) {
  Points points;
  points.reserve(lines.size());
  for (const json& line : lines) {
    points.emplace_back(line.at("step").get<double>(), value(line));
  }
  return points;
}

// Means over runs of equally many points.
Points thinned(const Points& points) {
  const std::size_t width = (points.size() + kMostPoints - 1) / kMostPoints;
  Points means;
  for (std::size_t i = 0; i < points.size(); i += width) {
    const std::size_t count = std::min(width, points.size() - i);
    std::pair<double, double> mean;
    for (std::size_t j = i; j < i + count; ++j) {
      mean.first += points[j].first / static_cast<double>(count);
      mean.second += points[j].second / static_cast<double>(count);
    }
    means.push_back(mean);
  }
  return means;
}

double ratio_of(const json& share) {
  return 1.0 / std::max(1e-3, 1.0 - share.get<double>());
}

Plot plot_of_loss(const Lines& updates, const Lines& looks) {
  const bool distilled = !looks.empty() && looks.back().at("held_out").contains("kld");
  const char* const key = distilled ? "kld" : "nll_per_token";
  const auto held_out = [key](const json& look) { return look.at("held_out").value(key, 0.0); };
  return {.title = distilled ? "Divergence from the original model" : "Loss",
          .x_label = "update",
          .y_label = "nats per token",
          .series = {
              {"training",
               {},
               thinned(by_step(
                   updates, [](const json& update) { return update.at("loss").get<double>(); }))},
              {"held out", by_step(looks, held_out), {}}}};
}

Plot plot_of_ratio(const Lines& evicting, const Lines& looks) {
  const auto line = [&](const char* key) {
    return thinned(
        by_step(evicting, [key](const json& update) { return ratio_of(update.at(key)); }));
  };
  const auto held_out = [](const json& look) {
    return look.at("held_out").at("compression_ratio").get<double>();
  };
  return {.title = "Compression ratio",
          .x_label = "update",
          .y_label = "ratio",
          .series = {{"sampled marks", {}, line("evicted")},
                     {"their target", {}, line("evicted_target")},
                     {"held out", by_step(looks, held_out), {}}}};
}

// The share of one layer: of `head`, or the mean of all heads if it is negative.
double share_of(const json& update, int layers, int layer, int head) {
  const auto& shares = update.at("evicted_per_head");
  const std::size_t heads = shares.size() / static_cast<std::size_t>(layers);
  const auto first = shares.begin() + static_cast<std::ptrdiff_t>(heads) * layer;
  if (head >= 0) {
    return (first + head)->get<double>();
  }
  double sum = 0.0;
  for (auto share = first; share != first + static_cast<std::ptrdiff_t>(heads); ++share) {
    sum += share->get<double>();
  }
  return sum / static_cast<double>(heads);
}

Plot plot_of_layers(const Lines& evicting, int layers) {
  Plot plot{
      .title = "Share evicted, by layer", .x_label = "update", .y_label = "share", .series = {}};
  for (int layer = 0; layer < layers; ++layer) {
    const auto share = [&](const json& update) { return share_of(update, layers, layer, -1); };
    plot.series.push_back({fmt::format("layer {}", layer), {}, thinned(by_step(evicting, share))});
  }
  return plot;
}

std::string heat_map(const Lines& evicting, int layers) {
  const std::size_t last = std::min(kLastUpdates, evicting.size());
  const auto heads =
      static_cast<int>(evicting.back().at("evicted_per_head").size()) / std::max(1, layers);
  std::string table = fmt::format(
      "<h2>Share evicted, last {} updates</h2>\n<p>The darker, the more a head keeps.</p>\n"
      "<table><tr><th>layer</th>",
      last);
  for (int head = 0; head < heads; ++head) {
    table += fmt::format("<th>head {}</th>", head);
  }
  for (int layer = 0; layer < layers; ++layer) {
    table += fmt::format("</tr>\n<tr><th>{}</th>", layer);
    for (int head = 0; head < heads; ++head) {
      double share = 0.0;
      for (std::size_t i = evicting.size() - last; i < evicting.size(); ++i) {
        share += share_of(evicting[i], layers, layer, head) / static_cast<double>(last);
      }
      table += fmt::format("<td style=\"background: rgba(37, 99, 168, {:.2f})\">{:.0f} %</td>",
                           1.0 - share, 100.0 * share);
    }
  }
  return table + "</tr></table>\n";
}

}  // namespace

std::string training_page(const std::string& title, const std::string& metrics, int layers) {
  const Lines updates = lines_with(metrics, "loss");
  const Lines evicting = lines_with(metrics, "evicted_per_head");
  const Lines looks = lines_with(metrics, "held_out");
  std::string page =
      fmt::format(kTrainingPageHead, escape_markup(title)) + to_svg(plot_of_loss(updates, looks));
  if (!evicting.empty()) {
    page += to_svg(plot_of_ratio(evicting, looks)) + to_svg(plot_of_layers(evicting, layers)) +
            heat_map(evicting, layers);
  }
  return page + "</body></html>\n";
}

}  // namespace winnow::cli
