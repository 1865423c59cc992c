#include "eval/hyperscale.h"

#include <algorithm>
#include <limits>

#include "answers/answer_check.h"
#include "answers/majority.h"
#include "base/error.h"
#include "engine/request.h"
#include "eval/tasks/text_tasks.h"

namespace winnow::eval {
namespace {

// The accuracy at `budget`, which must be within the frontier.
double interpolated(std::span<const BudgetPoint> frontier, double budget) {
  const auto above = std::ranges::lower_bound(frontier, budget, {}, &BudgetPoint::budget);
  if (above == frontier.begin()) {
    return frontier.front().accuracy;
  }
  if (above == frontier.end()) {
    return frontier.back().accuracy;
  }
  const BudgetPoint& low = *(above - 1);
  const double share = (budget - low.budget) / (above->budget - low.budget);
  return low.accuracy + share * (above->accuracy - low.accuracy);
}

// Whether the chain has an answer. A chain that ended by itself may just end with a number.
bool votes(const Json& answer) {
  if (answer.at("stated").get<std::string>().empty()) {
    return false;
  }
  if (answer.at("finish") != engine::finish_name(engine::FinishReason::length)) {
    return true;
  }
  return !answers::vote_of(answer.at("text").get<std::string>(), /*whole=*/false).empty();
}

}  // namespace

std::vector<Question> at_length(std::span<const Question> questions, int length) {
  std::vector<Question> result(questions.begin(), questions.end());
  for (Question& question : result) {
    question.id = fmt::format("{}/{}", length, question.id);
    question.max_tokens = std::max(1, length - static_cast<int>(question.prompt.size()));
    question.facts["length"] = length;
    question.facts["fits"] = static_cast<int>(question.prompt.size()) < length;
  }
  return result;
}

std::vector<std::size_t> majority(const Json& answers) {
  std::vector<std::string> stated;
  for (const Json& answer : answers) {
    stated.push_back(votes(answer) ? answer.at("stated").get<std::string>() : "");
  }
  return answers::majority(answers::opinions(stated, answers::answers_agree));
}

bool solved_together(const Json& record, std::size_t first, std::size_t width) {
  Json group = Json::array();
  for (std::size_t i = first; i < first + width; ++i) {
    group.push_back(record.at("answers").at(i));
  }
  const TextTask* task = find_text_task(record.at("task").get<std::string>());
  if (task != nullptr && task->program != nullptr) {
    return std::ranges::any_of(group,
                               [](const Json& answer) { return answer.at("correct").get<bool>(); });
  }
  const auto agreed = majority(group);
  return !agreed.empty() && group[agreed.front()].at("correct").get<bool>();
}

std::vector<ScalingPoint> summarize_scaling(const Journal& journal,
                                            std::span<const Question> questions, int length,
                                            std::span<const int> widths) {
  std::vector<ScalingPoint> points;
  for (const int width : widths) {
    ScalingPoint point{.length = length, .width = width};
    Mean accuracy;
    Mean ratio;
    Mean reads;
    Mean peak;
    for (const Json* record : answered_records(journal, questions, point.skipped)) {
      if (!record->at("fits").get<bool>()) {
        ++point.skipped;
        continue;
      }
      ++point.questions;
      const auto each = static_cast<std::size_t>(width);
      Mean solved;
      for (std::size_t first = 0; first + each <= record->at("answers").size(); first += each) {
        solved.add(solved_together(*record, first, each) ? 1.0 : 0.0);
      }
      accuracy.add(solved.mean());
      ratio.add(record->at("compression_ratio").get<double>());
      const Json& cost = record->at("by_width").at(std::to_string(width));
      reads.add(cost.at("kv_reads").get<double>());
      peak.add(cost.at("peak_tokens").get<double>());
    }
    point.accuracy = accuracy.estimate();
    point.compression_ratio = ratio.count() > 0 ? ratio.mean() : 1.0;
    point.kv_reads = reads.mean();
    point.peak_tokens = peak.mean();
    points.push_back(point);
  }
  return points;
}

std::vector<BudgetPoint> pareto_frontier(std::vector<BudgetPoint> points) {
  std::ranges::sort(points, [](const BudgetPoint& a, const BudgetPoint& b) {
    return a.budget < b.budget || (a.budget == b.budget && a.accuracy > b.accuracy);
  });
  std::vector<BudgetPoint> frontier;
  for (const BudgetPoint& point : points) {
    if (frontier.empty() || point.accuracy > frontier.back().accuracy) {
      frontier.push_back(point);
    }
  }
  return frontier;
}

double frontier_margin(std::span<const BudgetPoint> a, std::span<const BudgetPoint> b) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  if (a.empty() || b.empty()) {
    return kNone;
  }
  const double low = std::max(a.front().budget, b.front().budget);
  const double high = std::min(a.back().budget, b.back().budget);
  if (!(low < high)) {
    return kNone;
  }
  // Both are linear between these budgets, so the trapezoidal rule is exact.
  std::vector<double> budgets{low, high};
  for (const auto& frontier : {a, b}) {
    for (const BudgetPoint& point : frontier) {
      if (point.budget > low && point.budget < high) {
        budgets.push_back(point.budget);
      }
    }
  }
  std::ranges::sort(budgets);
  double area = 0.0;
  for (std::size_t i = 1; i < budgets.size(); ++i) {
    const double before = interpolated(a, budgets[i - 1]) - interpolated(b, budgets[i - 1]);
    const double after = interpolated(a, budgets[i]) - interpolated(b, budgets[i]);
    area += (before + after) / 2.0 * (budgets[i] - budgets[i - 1]);
  }
  return area / (high - low);
}

}  // namespace winnow::eval
