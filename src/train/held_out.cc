#include "train/held_out.h"

#include "base/error.h"

namespace winnow::train {

HeldOut::HeldOut(const model::Checkpoint& base, const Shards& shards, const Options& options)
    : options_(options) {
  LoadOptions load;
  load.dtype = dtype_name(options.compute);
  load.device = options.device;
  const engine::EngineConfig config = engine::resolve_options(load, base.spec());
  base_ = engine::place_model({base.spec(), model::load_weights(base, {}, !config.cuda_device)},
                              config, base.parameter_count());
  const auto most = options.max_tokens > 0 ? static_cast<std::size_t>(options.max_tokens)
                                           : static_cast<std::size_t>(shards.tokens());
  for (std::size_t i = 0; i < shards.documents() && tokens_.size() < most; ++i) {
    const auto tokens = shards.document(i).tokens;
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  }
  tokens_.resize(std::min(tokens_.size(), most));
  require(tokens_.size() >= 2, "the held-out text has {} tokens: at least 2 are needed",
          tokens_.size());
}

eval::PerplexityResult HeldOut::measure(std::shared_ptr<const ExportedModel> model,
                                        const std::function<bool()>& go_on) const {
  const auto loaded = load_exported(std::move(model), options_.compute, options_.device);
  return measure(*loaded, options_.compare ? base_.get() : nullptr, go_on);
}

eval::PerplexityResult HeldOut::measure_base(const std::function<bool()>& go_on) const {
  return measure(*base_, nullptr, go_on);
}

eval::PerplexityResult HeldOut::measure(const engine::LoadedModel& model,
                                        const engine::LoadedModel* reference,
                                        const std::function<bool()>& go_on) const {
  eval::PerplexityOptions options;
  options.context = options_.context;
  if (const auto begin = model.spec().bos_token) {
    options.prefix = {*begin};
  }
  options.on_progress = [&go_on](std::int64_t) { return !go_on || go_on(); };
  return eval::measure_perplexity(model, reference, tokens_, options);
}

}  // namespace winnow::train
