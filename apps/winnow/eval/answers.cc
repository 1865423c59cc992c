#include "apps/winnow/eval/answers.h"

#include <fmt/format.h>

#include "apps/winnow/eval/run.h"
#include "apps/winnow/output.h"

namespace winnow::cli {

void print_answers(const eval::AnswerSummary& summary) {
  const std::string skipped =
      summary.skipped > 0 ? fmt::format("{} too long and skipped", grouped(summary.skipped)) : "";
  if (summary.questions == 0) {
    print(fmt::format("accuracy           -  (no questions answered; {})\n", skipped));
    return;
  }
  print(fmt::format("accuracy           {} %  ({} questions{}{})\n",
                    with_error(100.0 * summary.accuracy.mean, 100.0 * summary.accuracy.error, 1),
                    grouped(summary.questions), skipped.empty() ? "" : ", ", skipped));
  print(fmt::format("prompt             {:.0f} tokens\n", summary.prompt_tokens));
  print(fmt::format("compression ratio  {:.2f}\n", summary.compression_ratio));
  print(fmt::format("cache              {}\n", readable_bytes(summary.kv_bytes)));
  print(fmt::format(
      "KV reads           {:.0f} entries per head for the answer, {:.0f} for the prompt\n",
      summary.kv_reads, summary.prompt_reads));
  print(fmt::format("peak               {:.0f} entries per head\n", summary.peak_tokens));
}

}  // namespace winnow::cli
