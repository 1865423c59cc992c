#include "train/cuda/pass_inputs.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "train/cuda/copies.h"

namespace winnow::train::cuda {

PassInputs::PassInputs(std::size_t tokens, std::size_t decisions, int chunk)
    : tokens_(tokens), chunk_(chunk), batch_(kColumns * tokens), values_(1), losses_(decisions) {}

void PassInputs::take(const Batch& batch, const DecisionPass& pass, cudaStream_t stream) {
  assert(batch.size() == tokens_);
  if (used_ == host_.size()) {
    host_.emplace_back(tokens_, losses_.size());
  }
  HostInputs& host = host_[used_++];
  const auto fill = [&](Column which, const auto& values) {
    std::memcpy(host.batch.data() + which * tokens_, values.data(), tokens_ * sizeof(std::int32_t));
  };
  fill(kTokens, batch.tokens);
  fill(kTargets, batch.targets);
  fill(kWeights, batch.weights);
  fill(kFirstKeys, batch.first_key);
  for (std::size_t t = 0; t < tokens_; ++t) {
    const auto token = static_cast<std::int32_t>(t);
    const std::int32_t position = token - batch.first_key[t];
    host.batch.data()[kPositions * tokens_ + t] = position;
    host.batch.data()[kChunkKeys * tokens_ + t] = chunk_ > 0 ? token - position % chunk_ : token;
  }
  const bool off = pass.mode == DecisionPass::Mode::off;
  *host.values.data() = {pass.noise, off ? pass.fade : 0.0F};
  copy_async(batch_, host.batch, stream);
  copy_async(values_, host.values, stream);
}

void PassInputs::take(std::span<const DecisionLoss> losses, cudaStream_t stream) {
  HostInputs& host = host_[used_ - 1];
  const std::size_t decisions = losses_.size() / losses.size();  // per layer
  for (std::size_t i = 0; i < losses_.size(); ++i) {
    const DecisionLoss& loss = losses[i / decisions];
    const float spread = loss.spread.empty() ? 0.0F : loss.spread[i % decisions];
    host.losses.data()[i] = {loss.count + spread, loss.excess, loss.excess_limit};
  }
  copy_async(losses_, host.losses, stream);
}

void PassInputs::clear(cudaStream_t stream) {
  clear_async(batch_, stream);
  clear_async(values_, stream);
  clear_async(losses_, stream);
}

}  // namespace winnow::train::cuda
