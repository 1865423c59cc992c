#include "eval/divergence.h"

#include <chrono>
#include <cmath>

#include "api/llm_session.h"
#include "base/error.h"
#include "eval/forcing.h"
#include "eval/log_softmax.h"

namespace winnow::eval {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::int32_t most_likely(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::ranges::max_element(logits) - logits.begin());
}

}  // namespace

GreedyRun run_greedy(const engine::LoadedModel& model, std::span<const std::int32_t> prompt,
                     int max_tokens, const OnToken& on_token, const OnPrefill& on_prefill) {
  require(!prompt.empty(), "the prompt is empty");
  const auto vocab = static_cast<std::size_t>(model.spec().vocab);
  const auto length = static_cast<int>(prompt.size());
  require(length + max_tokens <= model.spec().max_positions,
          "{} prompt tokens and {} new ones are more than the model's {} positions", length,
          max_tokens, model.spec().max_positions);
  engine::Session session(*model.backend, model.engine, {length, length + max_tokens});
  GreedyRun run;
  std::vector<float> logits(vocab);

  const auto chunk = static_cast<std::size_t>(model.engine.step_tokens);
  const auto start = Clock::now();
  for (std::size_t first = 0; first < prompt.size(); first += chunk) {
    const std::size_t count = std::min(chunk, prompt.size() - first);
    const bool last = first + count == prompt.size();
    session.feed(prompt.subspan(first, count), last ? std::span(logits) : std::span<float>());
    if (on_prefill) {
      on_prefill(static_cast<int>(first + count));
    }
  }
  run.prefill_tokens_per_s = length / seconds_since(start);
  const std::size_t after_prompt = session.usage().bytes;

  double decode_seconds = 0.0;
  for (int i = 0; i < max_tokens; ++i) {
    const std::int32_t token = most_likely(logits);
    run.tokens.push_back(token);
    run.logits.insert(run.logits.end(), logits.begin(), logits.end());
    const bool wanted = !on_token || on_token(token);
    if (!wanted || i + 1 == max_tokens) {
      break;
    }
    const auto step = Clock::now();
    session.feed(std::span(&token, 1), logits);
    decode_seconds += seconds_since(step);
  }
  if (run.tokens.size() > 1) {
    run.decode_tokens_per_s = static_cast<double>(run.tokens.size() - 1) / decode_seconds;
  }
  run.cache = session.usage();
  run.peak_bytes = std::max(after_prompt, run.cache.bytes);
  return run;
}

double kl_divergence(std::span<const float> p_logits, std::span<const float> q_logits) {
  const LogSoftmax p(p_logits);
  const LogSoftmax q(q_logits);
  double sum = 0.0;
  for (std::size_t i = 0; i < p_logits.size(); ++i) {
    const double log_p = p(p_logits[i]);
    sum += std::exp(log_p) * (log_p - q(q_logits[i]));
  }
  return sum;
}

GreedyDivergence compare_greedy(const GreedyRun& run, const GreedyRun& reference) {
  GreedyDivergence result;
  const std::size_t count = std::min(run.tokens.size(), reference.tokens.size());
  const std::size_t vocab = count == 0 ? 0 : run.logits.size() / run.tokens.size();
  require(count == 0 || reference.logits.size() / reference.tokens.size() == vocab,
          "runs of models with different vocabularies cannot be compared");
  double sum = 0.0;
  for (std::size_t i = 0; i < count; ++i) {
    sum += kl_divergence(std::span(reference.logits).subspan(i * vocab, vocab),
                         std::span(run.logits).subspan(i * vocab, vocab));
    ++result.tokens_scored;
    if (run.tokens[i] != reference.tokens[i]) {
      break;
    }
    ++result.tokens_matched;
  }
  result.kld = result.tokens_scored > 0 ? sum / result.tokens_scored : 0.0;
  return result;
}

ForcedDivergence compare_forced(const GreedyRun& run, const GreedyRun& reference) {
  ForcedDivergence result;
  const std::size_t count = std::min(run.tokens.size(), reference.tokens.size());
  const std::size_t vocab = count == 0 ? 0 : run.logits.size() / run.tokens.size();
  require(count == 0 || reference.logits.size() / reference.tokens.size() == vocab,
          "runs of models with different vocabularies cannot be compared");
  for (std::size_t i = 0; i < count; ++i) {
    result.kld_sum += kl_divergence(std::span(reference.logits).subspan(i * vocab, vocab),
                                    std::span(run.logits).subspan(i * vocab, vocab));
    result.agreements += run.tokens[i] == reference.tokens[i] ? 1 : 0;
    ++result.tokens;
  }
  return result;
}

std::vector<GreedyRun> run_greedy_together(const engine::LoadedModel& model,
                                           std::span<const std::vector<std::int32_t>> prompts,
                                           int steps, std::span<const GreedyRun> references) {
  const model::ModelSpec& config = model.spec();
  const auto longest = std::ranges::max(prompts, {}, &std::vector<std::int32_t>::size).size();
  const int length = static_cast<int>(longest) + steps;
  require(length <= config.max_positions,
          "{} prompt tokens and {} new ones are more than the model's {} positions", longest, steps,
          config.max_positions);
  Forcing forcing(model, static_cast<int>(prompts.size()), length);
  for (const auto& prompt : prompts) {
    const int size = static_cast<int>(prompt.size());
    forcing.open(prompt, {size, size + steps}, prompt.size() - 1);
  }
  std::vector<GreedyRun> runs(prompts.size());
  for (auto shares = forcing.plan(); !shares.empty(); shares = forcing.plan()) {
    for (const ForcedRow& row : forcing.step(shares)) {
      GreedyRun& run = runs[row.sequence];
      const std::size_t place = run.tokens.size();
      run.tokens.push_back(most_likely(row.logits));
      run.logits.insert(run.logits.end(), row.logits.begin(), row.logits.end());
      if (static_cast<int>(run.tokens.size()) < steps) {
        forcing.append(row.sequence, references.empty() ? run.tokens.back()
                                                        : references[row.sequence].tokens[place]);
      }
    }
  }
  for (std::size_t i = 0; i < runs.size(); ++i) {
    runs[i].cache = forcing.usage(i);
  }
  return runs;
}

}  // namespace winnow::eval
