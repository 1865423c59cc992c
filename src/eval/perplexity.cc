#include "eval/perplexity.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/threads.h"
#include "engine/llm_session.h"
#include "eval/divergence.h"
#include "eval/log_softmax.h"

namespace winnow::eval {
namespace {

// What one predicted token adds to the sums.
struct Score {
  double nll = 0.0;
  double kld = 0.0;
  bool agrees = false;
};

Score score_row(std::span<const float> logits, std::span<const float> reference,
                std::int32_t target) {
  Score score;
  score.nll = -LogSoftmax(logits)(logits[static_cast<std::size_t>(target)]);
  if (!reference.empty()) {
    score.kld = kl_divergence(reference, logits);
    score.agrees = std::ranges::max_element(logits) - logits.begin() ==
                   std::ranges::max_element(reference) - reference.begin();
  }
  return score;
}

// Mean and standard error of a per-token quantity, from the sums of whole windows.
class WindowMean {
 public:
  void add(double sum, std::int64_t count) {
    if (count > 0) {
      sums_.push_back(sum);
      counts_.push_back(static_cast<double>(count));
    }
  }
  [[nodiscard]] double mean() const { return total(sums_) / std::max(1.0, total(counts_)); }
  // Of a ratio of sums over independent windows.
  [[nodiscard]] double error() const {
    const auto windows = static_cast<double>(sums_.size());
    if (windows < 2) {
      return 0.0;
    }
    double squares = 0.0;
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      const double deviation = sums_[i] - mean() * counts_[i];
      squares += deviation * deviation;
    }
    return std::sqrt(squares * windows / (windows - 1.0)) / total(counts_);
  }

 private:
  static double total(const std::vector<double>& x) {
    double sum = 0.0;
    for (const double value : x) {
      sum += value;
    }
    return sum;
  }
  std::vector<double> sums_;
  std::vector<double> counts_;
};

// Runs windows of a text through a model and its reference.
class Evaluation {
 public:
  Evaluation(const engine::LoadedModel& model, const engine::LoadedModel* reference,
             const PerplexityOptions& options)
      : model_(model),
        reference_(reference),
        options_(options),
        vocab_(static_cast<std::size_t>(model.model.config().vocab)) {}

  // Returns false when the caller wants no more.
  bool run_window(std::span<const std::int32_t> text) {
    std::vector<std::int32_t> tokens = options_.prefix;
    tokens.insert(tokens.end(), text.begin(), text.end());
    // All but the first token count as generated: Quest would read a whole prompt densely.
    const kvcache::SequenceLimits limits{1, static_cast<int>(tokens.size())};
    engine::Session session(*model_.backend, model_.engine, limits);
    std::optional<engine::Session> reference;
    if (reference_ != nullptr) {
      reference.emplace(*reference_->backend, reference_->engine, limits);
    }
    sums_ = {};
    bool go_on = true;
    for (std::size_t first = 0; first < tokens.size() && go_on; first += kChunk) {
      run_chunk(session, reference ? &*reference : nullptr, tokens, first);
      done_ += static_cast<std::int64_t>(std::min(kChunk, tokens.size() - first));
      go_on = !options_.on_progress || options_.on_progress(done_);
    }
    nll_.add(sums_.nll, sums_.count);
    kld_.add(sums_.kld, sums_.count);
    agreement_.add(static_cast<double>(sums_.agreements), sums_.count);
    scored_ += sums_.count;
    if (go_on && (static_cast<int>(tokens.size()) == options_.context || ratio_.mean() == 0.0)) {
      const engine::CacheUsage usage = session.usage();
      ratio_.add(usage.compression_ratio(), 1);
      bytes_.add(static_cast<double>(usage.bytes), 1);
    }
    return go_on;
  }

  [[nodiscard]] PerplexityResult result() const {
    PerplexityResult result;
    result.tokens = scored_;
    result.nll_per_token = nll_.mean();
    result.nll_error = nll_.error();
    result.compression_ratio = ratio_.mean();
    result.kv_bytes = bytes_.mean();
    if (reference_ != nullptr) {
      result.divergence = {kld_.mean(), kld_.error(), agreement_.mean()};
    }
    return result;
  }

 private:
  static constexpr std::size_t kChunk = 256;  // bounds the memory of logits

  struct Sums {
    double nll = 0.0;
    double kld = 0.0;
    std::int64_t agreements = 0;
    std::int64_t count = 0;
  };

  void run_chunk(engine::Session& session, engine::Session* reference,
                 std::span<const std::int32_t> tokens, std::size_t first) {
    const std::size_t count = std::min(kChunk, tokens.size() - first);
    const auto chunk = tokens.subspan(first, count);
    logits_.ensure(count * vocab_);
    session.feed(chunk, logits_.span().first(count * vocab_), {});
    if (reference != nullptr) {
      reference_logits_.ensure(count * vocab_);
      reference->feed(chunk, reference_logits_.span().first(count * vocab_), {});
    }
    // Row t predicts token first + t + 1; tokens of the prefix and the window's first are given.
    const std::size_t given = std::max<std::size_t>(1, options_.prefix.size());
    std::vector<Score> scores(count);
    parallel_each(count, [&](std::size_t t, int) {
      const std::size_t target = first + t + 1;
      if (target >= given && target < tokens.size()) {
        const auto rival = reference == nullptr
                               ? std::span<const float>()
                               : reference_logits_.span().subspan(t * vocab_, vocab_);
        scores[t] = score_row(logits_.span().subspan(t * vocab_, vocab_), rival, tokens[target]);
      }
    });
    for (std::size_t t = 0; t < count; ++t) {
      const std::size_t target = first + t + 1;
      if (target >= given && target < tokens.size()) {
        sums_.nll += scores[t].nll;
        sums_.kld += scores[t].kld;
        sums_.agreements += scores[t].agrees ? 1 : 0;
        ++sums_.count;
      }
    }
  }

  const engine::LoadedModel& model_;
  const engine::LoadedModel* reference_;
  const PerplexityOptions& options_;
  std::size_t vocab_;
  Buffer<float> logits_;
  Buffer<float> reference_logits_;
  Sums sums_;
  WindowMean nll_;
  WindowMean kld_;
  WindowMean agreement_;
  WindowMean ratio_;
  WindowMean bytes_;
  std::int64_t scored_ = 0;
  std::int64_t done_ = 0;
};

}  // namespace

double PerplexityResult::perplexity() const {
  return std::exp(nll_per_token);
}

PerplexityResult measure_perplexity(const engine::LoadedModel& model,
                                    const engine::LoadedModel* reference,
                                    std::span<const std::int32_t> tokens,
                                    const PerplexityOptions& options) {
  const ModelConfig& config = model.model.config();
  const auto prefix = static_cast<int>(options.prefix.size());
  require(options.context > prefix + 1 && options.context <= config.max_positions,
          "context {} is not between {} and the model's {} positions", options.context, prefix + 2,
          config.max_positions);
  require(reference == nullptr || reference->model.config().vocab == config.vocab,
          "the reference has a vocabulary of {} tokens, the model one of {}",
          reference == nullptr ? 0 : reference->model.config().vocab, config.vocab);
  if (options.max_tokens > 0 && static_cast<std::size_t>(options.max_tokens) < tokens.size()) {
    tokens = tokens.first(static_cast<std::size_t>(options.max_tokens));
  }
  require(tokens.size() >= 2, "the text has {} tokens: at least 2 are needed", tokens.size());
  Evaluation evaluation(model, reference, options);
  const auto step = static_cast<std::size_t>(options.context - prefix);
  for (std::size_t first = 0; first + 1 < tokens.size(); first += step) {
    if (!evaluation.run_window(tokens.subspan(first, std::min(step, tokens.size() - first)))) {
      break;
    }
  }
  return evaluation.result();
}

}  // namespace winnow::eval
