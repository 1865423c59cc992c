#include "eval/suite/conclusion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

namespace winnow::eval {
namespace {

using Titles = std::vector<std::string>;

std::string in_a_sentence(std::string title) {
  // Acronyms such as "KLD" keep their case.
  if (title.size() > 1 && title[1] >= 'a' && title[1] <= 'z') {
    title[0] = static_cast<char>(title[0] >= 'A' && title[0] <= 'Z' ? title[0] + 32 : title[0]);
  }
  return title;
}

std::string rows_of(std::size_t count) {
  return fmt::format("{} {}", count, count == 1 ? "row" : "rows");
}

std::string held_text(std::size_t count) {
  return fmt::format("{} {}", rows_of(count), count == 1 ? "holds" : "hold");
}

std::string are(std::size_t count) {
  return fmt::format("{} {}", count, count == 1 ? "is" : "are");
}

std::string listed(const Titles& titles) {
  return fmt::format("{}", fmt::join(titles, "; "));
}

}  // namespace

Conclusion conclude(std::span<const SuiteRow> rows, double ratio) {
  Titles lost;
  Titles open;
  Titles dearer;
  Titles of_open_cost;
  std::size_t held = 0;
  for (const SuiteRow& row : rows) {
    const std::string title = in_a_sentence(row.title);
    if (row.kind == SuiteRow::Kind::cost) {
      if (row.verdict != Verdict::holds) {
        (row.verdict == Verdict::loses ? dearer : of_open_cost).push_back(title);
      }
    } else if (row.verdict == Verdict::holds) {
      ++held;
    } else {
      (row.verdict == Verdict::loses ? lost : open).push_back(title);
    }
  }
  const std::string at = fmt::format("at a measured compression ratio of {:.1f}", ratio);
  Conclusion result;
  if (!lost.empty()) {
    result.verdict = Verdict::loses;
    result.sentence = fmt::format(
        "No, not for everything: {} the student loses more than agreed in "
        "{} of {} of quality ({}); {}",
        at, lost.size(), rows_of(lost.size() + open.size() + held), listed(lost), held_text(held));
    result.sentence += open.empty() ? "." : fmt::format(", {} not decided.", are(open.size()));
  } else if (!open.empty()) {
    result.sentence =
        fmt::format("Not decided: {} nothing is certainly lost; {}, {} not decided ({}).", at,
                    held_text(held), are(open.size()), listed(open));
  } else if (held == 0) {
    result.sentence =
        fmt::format("Not decided: {}, but nothing that the student says was measured.", at);
  } else {
    result.verdict = Verdict::holds;
    result.sentence =
        fmt::format("Yes: {} the student holds in all {} of quality.", at, rows_of(held));
  }
  if (!dearer.empty()) {
    result.sentence += fmt::format(" It costs more: {}.", listed(dearer));
  }
  if (!of_open_cost.empty()) {
    result.sentence +=
        fmt::format(" Whether it costs more is not decided: {}.", listed(of_open_cost));
  }
  return result;
}

}  // namespace winnow::eval
