#include "train/metrics.h"

#include <fstream>
#include <utility>

#include "base/error.h"
#include "checkpoint/atomic_file.h"
#include "checkpoint/json_text.h"

namespace winnow::train {
namespace {

using nlohmann::ordered_json;

std::string lines_up_to(const std::filesystem::path& path, std::int64_t step) {
  std::string kept;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const auto json = json_or_discarded<ordered_json>(line);
    if (json.is_object() && json.value("step", step + 1) <= step) {
      kept += line + "\n";
    }
  }
  return kept;
}

}  // namespace

ordered_json to_json(const StepReport& report) {
  ordered_json json{{"step", report.step},     {"loss", report.loss},
                    {"lr", report.rate},       {"gradient_norm", report.norm},
                    {"tokens", report.tokens}, {"seconds", report.seconds}};
  if (report.utilization > 0.0) {
    json["mfu"] = report.utilization;
  }
  if (report.eviction) {
    json["decision_gradient_norm"] = report.decision_norm;
    json["evicted_target"] = report.eviction->target;
    json["evicted"] = report.eviction->share;
    json["price"] = report.eviction->price;
    json["evicted_per_head"] = report.eviction->shares;
  }
  return json;
}

ordered_json to_json(std::int64_t step, const eval::PerplexityResult& result) {
  ordered_json held_out{{"perplexity", result.perplexity()},
                        {"nll_per_token", result.nll_per_token},
                        {"nll_error", result.nll_error},
                        {"tokens", result.tokens},
                        {"compression_ratio", result.compression_ratio}};
  if (result.divergence) {
    held_out["kld"] = result.divergence->kld;
    held_out["kld_error"] = result.divergence->kld_error;
    held_out["top1_agreement"] = result.divergence->top1_agreement;
  }
  return {{"step", step}, {"held_out", held_out}};
}

MetricsFile::MetricsFile(std::filesystem::path path, std::int64_t steps_done)
    : path_(std::move(path)) {
  write_text_file(path_, lines_up_to(path_, steps_done));
  file_.reset(std::fopen(path_.c_str(), "ab"));
  require_system(file_ != nullptr, "{}: cannot open", path_.string());
}

void MetricsFile::write(const ordered_json& line) {
  const std::string text = json_text(line) + "\n";
  const bool written = std::fwrite(text.data(), 1, text.size(), file_.get()) == text.size() &&
                       std::fflush(file_.get()) == 0;
  require_system(written, "{}: cannot write", path_.string());
}

}  // namespace winnow::train
