#include "eval/perplexity.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "base/threads.h"
#include "engine/request.h"
#include "eval/divergence.h"
#include "eval/forcing.h"
#include "eval/log_softmax.h"
#include "eval/statistics.h"

namespace winnow::eval {
namespace {

// One predicted token's contribution to the sums.
struct Score {
  double nll = 0.0;
  double reference_nll = 0.0;
  double kld = 0.0;
  bool agrees = false;
};

Score score_row(std::span<const float> logits, std::span<const float> reference,
                std::int32_t target) {
  Score score;
  score.nll = -LogSoftmax(logits)(logits[static_cast<std::size_t>(target)]);
  if (!reference.empty()) {
    score.reference_nll = -LogSoftmax(reference)(reference[static_cast<std::size_t>(target)]);
    score.kld = kl_divergence(reference, logits);
    score.agrees = std::ranges::max_element(logits) - logits.begin() ==
                   std::ranges::max_element(reference) - reference.begin();
  }
  return score;
}

// Sums over some tokens of a window.
struct Sums {
  double nll = 0.0;
  double reference_nll = 0.0;
  std::int64_t tokens = 0;

  void add(const Score& score) {
    nll += score.nll;
    reference_nll += score.reference_nll;
    ++tokens;
  }
};

// A window of the text that the models are reading.
struct Window {
  std::size_t index = 0;
  std::size_t sequence = 0;  // of `model`
  std::size_t rival = 0;     // of `reference`
  Sums all = {};
  std::vector<Sums> parts;
  double kld = 0.0;
  std::int64_t agreements = 0;
};

// Runs the windows that have no record yet, in batches.
class Evaluation {
 public:
  Evaluation(const engine::LoadedModel& model, const engine::LoadedModel* reference,
             std::span<const std::int32_t> tokens, const PerplexityOptions& options,
             Journal& journal)
      : tokens_(tokens),
        options_(options),
        journal_(journal),
        step_(static_cast<std::size_t>(options.context) - options.prefix.size()),
        model_(model, options.batch, options.context) {
    if (reference != nullptr) {
      reference_.emplace(*reference, options.batch, options.context);
    }
  }

  [[nodiscard]] std::size_t windows() const { return (tokens_.size() - 1 + step_ - 1) / step_; }

  void run() {
    std::size_t next = 0;
    while (true) {
      for (; next < windows() && open_.size() < static_cast<std::size_t>(options_.batch); ++next) {
        if (journal_.find(name(next)) != nullptr) {
          done_ += static_cast<std::int64_t>(text(next).size());
        } else {
          open(next);
        }
      }
      const auto shares = model_.plan();
      if (shares.empty()) {
        return;
      }
      step(shares);
      if (options_.on_progress && !options_.on_progress(done_)) {
        return;
      }
    }
  }

  static std::string name(std::size_t window) { return fmt::format("window {}", window); }

 private:
  [[nodiscard]] std::span<const std::int32_t> text(std::size_t window) const {
    const std::size_t first = window * step_;
    return tokens_.subspan(first, std::min(step_, tokens_.size() - first));
  }

  void open(std::size_t index) {
    std::vector<std::int32_t> tokens = options_.prefix;
    tokens.insert(tokens.end(), text(index).begin(), text(index).end());
    // All but the first token count as generated: Quest would read a whole prompt densely.
    const kvcache::SequenceLimits limits{1, static_cast<int>(tokens.size())};
    const std::size_t first_row = std::max<std::size_t>(1, options_.prefix.size()) - 1;
    Window window{.index = index, .parts = std::vector<Sums>(options_.parts.size() + 1)};
    if (reference_) {
      window.rival = reference_->open(tokens, limits, first_row);
    }
    window.sequence = model_.open(std::move(tokens), limits, first_row);
    open_.push_back(window);
  }

  void step(std::span<const ForcedShare> shares) {
    const auto rows = model_.step(shares);
    // Both open windows in the same order, so a share means the same to both.
    const auto rivals = reference_ ? reference_->step(shares) : std::vector<ForcedRow>();
    std::vector<Score> scores(rows.size());
    parallel_each(rows.size(), [&](std::size_t i, int) {
      const auto tokens = model_.tokens(rows[i].sequence);
      if (rows[i].position + 1 < tokens.size()) {
        scores[i] =
            score_row(rows[i].logits, rivals.empty() ? std::span<const float>() : rivals[i].logits,
                      tokens[rows[i].position + 1]);
      }
    });
    for (const ForcedShare& share : shares) {
      done_ += static_cast<std::int64_t>(share.tokens);
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const bool is_last = rows[i].position + 1 == model_.tokens(rows[i].sequence).size();
      const auto window = std::ranges::find(open_, rows[i].sequence, &Window::sequence);
      if (!is_last) {
        window->all.add(scores[i]);
        window->parts[part_of(rows[i].position + 1)].add(scores[i]);
        window->kld += scores[i].kld;
        window->agreements += scores[i].agrees ? 1 : 0;
      } else {
        finish(*window);
        open_.erase(window);
      }
    }
  }

  [[nodiscard]] std::size_t part_of(std::size_t position) const {
    return static_cast<std::size_t>(
        std::ranges::upper_bound(options_.parts, static_cast<int>(position)) -
        options_.parts.begin());
  }

  void finish(const Window& window) {
    require(!std::isnan(window.all.nll), "{}", engine::kNotNumbers);
    const engine::CacheUsage usage = model_.usage(window.sequence);
    Json record{{"tokens", window.all.tokens},
                {"length", usage.tokens},
                {"nll", window.all.nll},
                {"compression_ratio", usage.compression_ratio()},
                {"kv_bytes", usage.bytes}};
    if (reference_) {
      record["reference_nll"] = window.all.reference_nll;
      record["kld"] = window.kld;
      record["agreements"] = window.agreements;
      reference_->close(window.rival);
    }
    for (const Sums& part : window.parts) {
      if (options_.parts.empty()) {
        break;
      }
      record["parts"].push_back(
          {{"tokens", part.tokens}, {"nll", part.nll}, {"reference_nll", part.reference_nll}});
    }
    journal_.add(name(window.index), record);
    model_.close(window.sequence);
  }

  std::span<const std::int32_t> tokens_;
  const PerplexityOptions& options_;
  Journal& journal_;
  std::size_t step_;  // tokens of text per window
  Forcing model_;
  std::optional<Forcing> reference_;
  std::vector<Window> open_;
  std::int64_t done_ = 0;
};

// Nats per token of a model and its reference, and the change, with errors over windows.
struct Nats {
  RatioMean nll;
  RatioMean reference_nll;
  RatioMean change;
  std::int64_t tokens = 0;

  void add(const Json& sums) {
    const auto count = sums.at("tokens").get<std::int64_t>();
    tokens += count;
    nll.add(sums.at("nll").get<double>(), count);
    if (sums.contains("reference_nll")) {
      const auto reference = sums.at("reference_nll").get<double>();
      reference_nll.add(reference, count);
      change.add(sums.at("nll").get<double>() - reference, count);
    }
  }
};

// Part `index` of all windows.
PerplexityResult::Part summarize_part(const Journal& journal, std::size_t windows,
                                      const PerplexityOptions& options, std::size_t index) {
  Nats nats;
  for (std::size_t i = 0; i < windows; ++i) {
    if (const Json* record = journal.find(Evaluation::name(i))) {
      nats.add(record->at("parts").at(index));
    }
  }
  PerplexityResult::Part part;
  part.first = index == 0 ? 0 : options.parts[index - 1];
  part.end = index == options.parts.size() ? options.context : options.parts[index];
  part.tokens = nats.tokens;
  part.nll = nats.nll.estimate().mean;
  part.reference_nll = nats.reference_nll.estimate().mean;
  part.change = nats.change.estimate();
  return part;
}

// From the records of all finished windows.
PerplexityResult summarize(const Journal& journal, std::size_t windows,
                           const PerplexityOptions& options) {
  Nats nats;
  RatioMean kld;
  RatioMean agreement;
  Mean ratio;
  Mean bytes;
  PerplexityResult result;
  for (std::size_t i = 0; i < windows; ++i) {
    const Json* record = journal.find(Evaluation::name(i));
    if (record == nullptr) {
      continue;
    }
    const auto tokens = record->at("tokens").get<std::int64_t>();
    nats.add(*record);
    if (record->contains("kld")) {
      kld.add(record->at("kld").get<double>(), tokens);
      agreement.add(record->at("agreements").get<double>(), tokens);
      result.divergence = PerplexityResult::Divergence();
    }
    if (record->at("length").get<int>() == options.context || ratio.count() == 0) {
      ratio.add(record->at("compression_ratio").get<double>());
      bytes.add(record->at("kv_bytes").get<double>());
    }
  }
  result.tokens = nats.tokens;
  result.nll_per_token = nats.nll.estimate().mean;
  result.nll_error = nats.nll.estimate().error;
  result.compression_ratio = ratio.count() > 0 ? ratio.mean() : 1.0;
  result.kv_bytes = bytes.mean();
  if (result.divergence) {
    result.divergence = {kld.estimate().mean, kld.estimate().error, agreement.estimate().mean,
                         nats.reference_nll.estimate().mean, nats.change.estimate()};
  }
  for (std::size_t i = 0; !options.parts.empty() && i <= options.parts.size(); ++i) {
    result.parts.push_back(summarize_part(journal, windows, options, i));
  }
  return result;
}

}  // namespace

double PerplexityResult::perplexity() const {
  return std::exp(nll_per_token);
}

PerplexityResult measure_perplexity(const engine::LoadedModel& model,
                                    const engine::LoadedModel* reference,
                                    std::span<const std::int32_t> tokens,
                                    const PerplexityOptions& options) {
  const model::ModelSpec& config = model.spec();
  const auto prefix = static_cast<int>(options.prefix.size());
  require(options.context > prefix + 1 && options.context <= config.max_positions,
          "--context {}: expected {} to {}, the model's positions", options.context, prefix + 2,
          config.max_positions);
  require(options.batch >= 1, "--batch {}: at least 1 is needed", options.batch);
  const kvcache::RuleTraits& rule = model.engine.cache.traits();
  require(!rule.has_budget || rule.budget_of != kvcache::BudgetOf::prompt,
          "--cache {}: only prompts shrink, and a text counts as an answer: measure tasks instead",
          rule.name);
  for (std::size_t i = 0; i < options.parts.size(); ++i) {
    const int after = i == 0 ? 0 : options.parts[i - 1];
    require(options.parts[i] > after && options.parts[i] < options.context,
            "part {} of the windows begins at {}: expected more than {} and less than {}", i + 2,
            options.parts[i], after, options.context);
  }
  require(reference == nullptr || reference->spec().vocab == config.vocab,
          "the reference has a vocabulary of {} tokens, the model one of {}",
          reference == nullptr ? 0 : reference->spec().vocab, config.vocab);
  if (options.max_tokens > 0 && static_cast<std::size_t>(options.max_tokens) < tokens.size()) {
    tokens = tokens.first(static_cast<std::size_t>(options.max_tokens));
  }
  require(tokens.size() >= 2, "the text has {} tokens: at least 2 are needed", tokens.size());
  Journal in_memory;
  Journal& journal = options.journal != nullptr ? *options.journal : in_memory;
  Evaluation evaluation(model, reference, tokens, options, journal);
  evaluation.run();
  return summarize(journal, evaluation.windows(), options);
}

}  // namespace winnow::eval
