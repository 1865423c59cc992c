#include "apps/winnow/bench/first_token.h"

#include <cstdint>
#include <limits>
#include <optional>

#include "apps/winnow/interrupt.h"
#include "base/error.h"
#include "base/random.h"
#include "base/stopwatch.h"

namespace winnow::cli {
namespace {

using Tokens = std::vector<std::int32_t>;

// An engine that is asked one prompt after another.
class PromptTimer {
 public:
  PromptTimer(const engine::Backend& backend, const engine::EngineConfig& config, Random& random)
      : vocab_(backend.spec().vocab), random_(random), engine_(backend, config) {}

  /// Seconds to the first token of an answer of two tokens: its end, where the engine keeps its
  /// state, is not among them. The prompt and the first token, whose state is kept, become known().
  double ask(Tokens prompt) {
    engine::Request request;
    request.prompt = std::move(prompt);
    request.max_tokens = 2;
    known_ = request.prompt;
    const Stopwatch clock;
    std::optional<double> first;
    const engine::RequestId id = engine_.submit(std::move(request));
    while (!engine_.idle()) {
      stop_if_interrupted();
      for (const engine::TokenEvent& event : engine_.step()) {
        require(event.token >= 0,
                "the prompt does not fit into the cache: allow it more memory "
                "with --kv-gib");
        if (!first) {
          first = clock.seconds();
          known_.push_back(event.token);
        }
      }
    }
    reused_ = engine_.take_usage(id, 0).reused_tokens;
    return first.value();
  }

  /// The same for a state that is known and new tokens.
  double ask_after(const Tokens& known) {
    Tokens prompt = known;
    append(kNewTokens, prompt);
    const double seconds = ask(std::move(prompt));
    require(reused_ == static_cast<int>(known.size()),
            "the prefix was not kept: allow it more memory with --kv-gib and --host-gib, which "
            "needs room for two states");
    return seconds;
  }

  [[nodiscard]] Tokens random_prompt(int length) {
    Tokens prompt;
    append(length, prompt);
    return prompt;
  }
  [[nodiscard]] const Tokens& known() const { return known_; }
  [[nodiscard]] engine::HostTierStats host() const { return engine_.stats().host.value(); }

 private:
  void append(int count, Tokens& tokens) {
    for (int i = 0; i < count; ++i) {
      tokens.push_back(static_cast<std::int32_t>(random_.uniform() * vocab_));
    }
  }

  int vocab_;
  Random& random_;
  engine::Engine engine_;
  Tokens known_;
  int reused_ = 0;
};

}  // namespace

FirstTokenResult run_first_token(const engine::Backend& backend, const engine::EngineConfig& given,
                                 const FirstTokenPlan& plan) {
  require(given.cache.traits().shares_prefixes(), "--prefix: under {} prefixes cannot be shared",
          kvcache::rule_name(given.cache.rule));
  engine::EngineConfig config = given;
  config.reuse_prefixes = true;
  FirstTokenResult result;
  Random random(1);
  {
    config.host_bytes = 0;
    config.prefix_bytes = std::numeric_limits<std::size_t>::max();
    PromptTimer timer(backend, config, random);
    timer.ask(timer.random_prompt(plan.prefix));  // touches weights, scratch memory and kernels
    for (int i = 0; i < plan.repeat; ++i) {
      result.computed.push_back(timer.ask(timer.random_prompt(plan.prefix)));
    }
    const Tokens known = timer.known();
    timer.ask_after(known);
    for (int i = 0; i < plan.repeat; ++i) {
      result.from_cache.push_back(timer.ask_after(known));
    }
  }
  config.host_bytes = given.host_bytes;
  config.prefix_bytes = 0;  // a state leaves the cache as soon as its sequence ends
  PromptTimer timer(backend, config, random);
  timer.ask(timer.random_prompt(plan.prefix));
  const Tokens known = timer.known();
  result.state_bytes = timer.host().bytes;
  timer.ask_after(known);
  const engine::HostTierStats before = timer.host();
  result.save_seconds = before.save_seconds / static_cast<double>(before.saved);
  for (int i = 0; i < plan.repeat; ++i) {
    result.from_host.push_back(timer.ask_after(known));
  }
  const engine::HostTierStats after = timer.host();
  result.restore_seconds = (after.restore_seconds - before.restore_seconds) /
                           static_cast<double>(after.restored - before.restored);
  return result;
}

}  // namespace winnow::cli
