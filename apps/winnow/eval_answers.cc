#include "eval_answers.h"

#include <fmt/format.h>

#include "eval_run.h"
#include "output.h"

namespace winnow::cli {

void print_answers(const eval::AnswerSummary& summary) {
  print(fmt::format("accuracy           {} %  ({} questions{})\n",
                    with_error(100.0 * summary.accuracy.mean, 100.0 * summary.accuracy.error, 1),
                    grouped(summary.questions),
                    summary.skipped > 0
                        ? fmt::format(", {} too long and skipped", grouped(summary.skipped))
                        : ""));
  print(fmt::format("prompt             {:.0f} tokens\n", summary.prompt_tokens));
  print(fmt::format("compression ratio  {:.2f}\n", summary.compression_ratio));
  print(fmt::format("cache              {}\n", readable_bytes(summary.kv_bytes)));
  print(
      fmt::format("KV reads           {:.0f} entries per head when writing, {:.0f} when reading\n",
                  summary.kv_reads, summary.prompt_reads));
  print(fmt::format("peak               {:.0f} entries per head\n", summary.peak_tokens));
}

}  // namespace winnow::cli
